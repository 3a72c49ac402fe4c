// strata bench startup: from the start of the command to the end of the first step.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "apps/strata/command.h"
#include "apps/strata/subprocess.h"
#include "strata/config/precision_flags.h"
#include "strata/formats/json.h"

namespace strata::apps {
namespace {

using formats::Json;
namespace fs = std::filesystem;

// `strata bench step` of one step, which writes `output`.
std::vector<std::string> command_of(const config::BenchStartupConfig& c,
                                    const std::string& output) {
  const config::PlacementConfig& placement = c.placement;
  std::vector<std::string> args = {own_path(),
                                   "bench",
                                   "step",
                                   "--model",
                                   c.model,
                                   "--sequence-length",
                                   std::to_string(c.sequence_length),
                                   "--per-device-train-batch-size",
                                   std::to_string(c.batch.per_device_train_batch_size),
                                   "--gradient-accumulation-steps",
                                   std::to_string(c.batch.gradient_accumulation_steps),
                                   "--devices",
                                   std::to_string(placement.devices),
                                   "--max-steps",
                                   "1",
                                   "--skip-steps",
                                   "0",
                                   "--output",
                                   output};
  if (placement.strategy != config::kAutoStrategy) {
    args.insert(args.end(), {"--strategy", placement.strategy});
  }
  for (const std::string& option : placement.set) args.insert(args.end(), {"--set", option});
  for (const std::string& path : placement.plugin_path) {
    args.insert(args.end(), {"--plugin-path", path});
  }
  if (c.batch.activation_checkpointing) args.emplace_back("--activation-checkpointing");
  const auto precision = config::precision_arguments(placement.precision, c.precision);
  args.insert(args.end(), precision.begin(), precision.end());
  return args;
}

// One start: seconds to the end of the first step, and of the whole command.
struct Start {
  double first_step_s = 0;
  double wall_s = 0;
};

Result<Start> measure(const config::BenchStartupConfig& config, const std::string& output) {
  STRATA_ASSIGN_OR_RETURN(const ProcessResult process,
                          run_process(command_of(config, output), true));
  if (process.exit_code != kExitDone) {
    return Status(process.exit_code == kExitRefused ? Code::kInvalidArgument : Code::kInternal,
                  fmt::format("bench startup: the measured command ended with exit code {}; its "
                              "message is above",
                              process.exit_code));
  }
  STRATA_ASSIGN_OR_RETURN(const Json step, formats::read_json(output));
  Start start;
  STRATA_ASSIGN_OR_RETURN(start.first_step_s, formats::get_double(step, "first_step_s", output));
  start.wall_s = process.wall_s;
  return start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Status measure_all(const config::BenchStartupConfig& config, const std::string& output) {
  std::vector<double> first_steps;
  std::vector<double> walls;
  for (int64_t i = 0; i < config.repetitions; ++i) {
    STRATA_ASSIGN_OR_RETURN(const Start start, measure(config, output));
    first_steps.push_back(start.first_step_s);
    walls.push_back(start.wall_s);
  }
  const Json out = {
      {"devices", config.placement.devices},
      {"median_s", median(first_steps)},
      {"min_s", *std::min_element(first_steps.begin(), first_steps.end())},
      {"wall_median_s", median(walls)},
      {"first_step_s", first_steps},
  };
  std::fputs(
      fmt::format("{} ranks: first step done after {:.3f} s (median of {}; min {:.3f} s), "
                  "command done after {:.3f} s\n",
                  config.placement.devices, out["median_s"].get<double>(), config.repetitions,
                  out["min_s"].get<double>(), out["wall_median_s"].get<double>())
          .c_str(),
      stdout);
  return config.output.empty() ? Status() : formats::write_json(config.output, out);
}

}  // namespace

int run(const config::BenchStartupConfig& config) {
  const std::string output =
      (fs::temp_directory_path() / fmt::format("strata-startup-{}.json", ::getpid())).string();
  const Status status = measure_all(config, output);
  std::error_code ignored;
  fs::remove(output, ignored);
  return exit_code_of(status, false);
}

}  // namespace strata::apps
