// strata bench strategies: the same steps of the same model under several strategies, each in a
// process of its own, and a table of memory, traffic, speed and loss.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "apps/strata/command.h"
#include "apps/strata/subprocess.h"
#include "strata/base/log.h"
#include "strata/base/text.h"
#include "strata/config/optimizer_flags.h"
#include "strata/config/precision_flags.h"
#include "strata/formats/json.h"
#include "strata/train/rank.h"

namespace strata::apps {
namespace {

using formats::Json;

// What one strategy did.
struct Row {
  std::string strategy;
  int ranks = 1;
  Json summary;
  double tokens_per_s = 0;  // median over the logged steps but the first
};

// Ranks for a strategy: all that were asked for, or as many as it can have at most.
Result<int> ranks_of(const config::BenchStrategiesConfig& config, const std::string& strategy) {
  config::PlacementConfig placement = config.placement;
  placement.strategy = strategy;
  STRATA_ASSIGN_OR_RETURN(const plugin::StrategyRequest request,
                          plugin::parse_strategy_request(strategy));
  plugin::PluginRegistry registry(train::host_offer(),
                                  plugin::search_places(placement.plugin_path));
  STRATA_ASSIGN_OR_RETURN(const plugin::ResolvedStrategy found, registry.find(request));
  STRATA_ASSIGN_OR_RETURN(const strata_capabilities_t can, found.library->describe(found.name));
  const int most = can.max_world == 0 ? config.placement.devices : static_cast<int>(can.max_world);
  return std::min(config.placement.devices, most);
}

std::vector<std::string> command_of(const config::BenchStrategiesConfig& c,
                                    const std::string& strategy, int ranks,
                                    const std::string& output_dir) {
  std::vector<std::string> args = {own_path(),
                                   "train",
                                   "--model",
                                   c.model,
                                   "--data",
                                   c.data.data,
                                   "--strategy",
                                   strategy,
                                   "--devices",
                                   std::to_string(ranks),
                                   "--sequence-length",
                                   std::to_string(c.data.sequence_length),
                                   "--per-device-train-batch-size",
                                   std::to_string(c.global_batch_size / ranks),
                                   "--max-steps",
                                   std::to_string(c.max_steps),
                                   "--seed",
                                   std::to_string(c.seed),
                                   "--logging-steps",
                                   "1",
                                   "--save-steps",
                                   "0",
                                   "--no-progress",
                                   "--output-dir",
                                   output_dir};
  const auto precision = config::precision_arguments(c.placement.precision, c.precision);
  args.insert(args.end(), precision.begin(), precision.end());
  const std::vector<std::string> optimizer = config::optimizer_arguments(c.optimizer);
  args.insert(args.end(), optimizer.begin(), optimizer.end());
  if (!c.data.tokenizer.empty()) {
    args.insert(args.end(), {"--tokenizer", c.data.tokenizer});
  }
  for (const std::string& path : c.placement.plugin_path) {
    args.insert(args.end(), {"--plugin-path", path});
  }
  return args;
}

double median_tokens_per_s(const std::string& metrics_path) {
  std::vector<double> values;
  std::ifstream in(metrics_path);
  for (std::string line; std::getline(in, line);) {
    const Json step = Json::parse(line, nullptr, false);
    if (!step.is_discarded()) values.push_back(step.value("tokens_per_s", 0.0));
  }
  if (values.size() > 1) values.erase(values.begin());  // the first step warms up
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

Result<Row> measure(const config::BenchStrategiesConfig& config, const std::string& strategy) {
  Row row;
  row.strategy = strategy;
  STRATA_ASSIGN_OR_RETURN(row.ranks, ranks_of(config, strategy));
  if (config.global_batch_size % row.ranks != 0) {
    return invalid_argument(fmt::format(
        "bench strategies: --global-batch-size {} does not divide by {} ranks of '{}'. HINT: {}",
        config.global_batch_size, row.ranks, strategy, row.ranks));
  }
  std::string folder = strategy;
  std::replace(folder.begin(), folder.end(), '/', '_');
  const std::string output_dir = config.output_dir + "/" + folder;
  log::info("{} on {} rank{} ...", strategy, row.ranks, row.ranks == 1 ? "" : "s");
  STRATA_ASSIGN_OR_RETURN(const ProcessResult process,
                          run_process(command_of(config, strategy, row.ranks, output_dir), true));
  if (process.exit_code != 0) {
    return Status(
        process.exit_code == kExitRefused ? Code::kInvalidArgument : Code::kInternal,
        fmt::format("bench strategies: '{}' ended with exit code {}; its message is above",
                    strategy, process.exit_code));
  }
  STRATA_ASSIGN_OR_RETURN(row.summary, formats::read_json(output_dir + "/summary.json"));
  row.tokens_per_s = median_tokens_per_s(output_dir + "/metrics.jsonl");
  return row;
}

// "identical" to the first row of as many ranks, or how far off.
std::string compare(const Row& row, const std::vector<Row>& rows) {
  for (const Row& other : rows) {
    if (other.ranks != row.ranks) continue;
    if (&other == &row) return "reference";
    const bool is_same = other.summary["losses"] == row.summary["losses"] &&
                         other.summary["weight_hash"] == row.summary["weight_hash"];
    return is_same ? "identical to " + other.strategy : "DIFFERS from " + other.strategy;
  }
  return "";
}

std::string table(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> cells = {{"strategy", "ranks", "param bytes", "grad bytes",
                                                  "optimizer bytes", "peak bytes", "sent/step",
                                                  "tokens/s", "loss", "losses and weights"}};
  for (const Row& row : rows) {
    const Json& rank = row.summary["ranks"].at(0);
    const auto bytes = [&](const char* key) { return std::to_string(rank.value(key, int64_t{0})); };
    cells.push_back({row.strategy, std::to_string(row.ranks), bytes("param_bytes"),
                     bytes("grad_bytes"), bytes("optimizer_bytes"), bytes("peak_bytes"),
                     bytes("sent_bytes_per_step"), fmt::format("{:.0f}", row.tokens_per_s),
                     fmt::format("{:.17g}", row.summary.value("final_loss", 0.0)),
                     compare(row, rows)});
  }
  return text::format_table(cells);
}

}  // namespace

int run(const config::BenchStrategiesConfig& config) {
  std::vector<Row> rows;
  for (const std::string& strategy : config.strategies) {
    auto row = measure(config, strategy);
    if (!row.ok()) return exit_code_of(row.status(), false);
    rows.push_back(std::move(*row));
  }
  std::fputs(fmt::format("{} steps, {} samples a step; bytes are per rank\n", config.max_steps,
                         config.global_batch_size)
                 .c_str(),
             stdout);
  std::fputs(table(rows).c_str(), stdout);
  const bool is_equal = std::none_of(rows.begin(), rows.end(), [&](const Row& row) {
    return compare(row, rows).starts_with("DIFFERS");
  });
  return is_equal ? kExitDone : kExitFailed;
}

}  // namespace strata::apps
