#include "strata/train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "strata/formats/file.h"

namespace strata::train {
namespace {

using Json = nlohmann::ordered_json;

// The lines of an earlier run that this one continues.
std::string lines_before(const std::string& path, int64_t first_step) {
  std::ifstream in(path);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.contains("step")) continue;  // a line cut by a kill
    const Json& step = object["step"];
    if (step.is_number_integer() && step.get<int64_t>() < first_step) kept += line + '\n';
  }
  return kept;
}

Status write_error(const std::string& path) {
  return io_error(fmt::format("metrics: cannot write '{}': {}. HINT: is the disk full?", path,
                              std::strerror(errno)));
}

}  // namespace

Result<MetricsFile> MetricsFile::open(const std::string& path, int64_t first_step) {
  const std::string kept = lines_before(path, first_step);
  STRATA_RETURN_IF_ERROR(formats::write_file_atomically(path, kept));
  std::ofstream file(path, std::ios::app);
  if (!file) return write_error(path);
  return MetricsFile(path, std::move(file));
}

Status MetricsFile::append(const StepMetrics& m) {
  const Json object = {{"step", m.step},
                       {"loss", m.loss},
                       {"grad_norm", m.grad_norm},
                       {"lr", m.lr},
                       {"tokens", m.tokens},
                       {"skipped_steps", m.skipped_steps},
                       {"loss_scale", m.loss_scale},
                       {"tokens_per_s", m.tokens_per_s},
                       {"step_s", m.step_s},
                       {"data_s", m.data_s},
                       {"comm_s", m.comm_s},
                       {"sent_bytes", m.sent_bytes},
                       {"device_bytes", m.device_bytes},
                       {"device_peak_bytes", m.device_peak_bytes},
                       {"host_peak_bytes", m.host_peak_bytes}};
  file_ << object.dump() << '\n' << std::flush;
  return file_ ? Status() : write_error(path_);
}

std::string to_json(const Summary& s) {
  Json ranks = Json::array();
  for (const RankSummary& rank : s.ranks) {
    ranks.push_back({{"param_bytes", rank.param_bytes},
                     {"grad_bytes", rank.grad_bytes},
                     {"optimizer_bytes", rank.optimizer_bytes},
                     {"gathered_peak_bytes", rank.gathered_peak_bytes},
                     {"peak_bytes", rank.peak_bytes},
                     {"sent_bytes_per_step", rank.sent_bytes_per_step}});
  }
  const Json object = {{"status", s.status},
                       {"steps", s.steps},
                       {"skipped_steps", s.skipped_steps},
                       {"loss_scale", s.loss_scale},
                       {"precision", s.precision},
                       {"final_loss", s.final_loss},
                       {"losses", s.losses},
                       {"weight_hash", s.weight_hash},
                       {"ranks", ranks},
                       {"strategy", s.strategy},
                       {"plugin",
                        {{"path", s.plugin.path},
                         {"id", s.plugin.id},
                         {"version", s.plugin.version},
                         {"abi", s.plugin.abi}}},
                       {"wall_s", s.wall_s},
                       {"first_step_s", s.first_step_s}};
  return object.dump(2) + '\n';
}

}  // namespace strata::train
