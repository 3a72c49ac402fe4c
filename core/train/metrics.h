// What a run leaves behind for tools: metrics.jsonl (one object a logged step) and summary.json.
//
// Both formats are stable: fields are added, never renamed. Units: seconds, bytes; `tokens` counts
// label tokens of all ranks in this step; sums and norms are over all ranks. A loss or norm that is
// not finite is null.
#ifndef STRATA_TRAIN_METRICS_H_
#define STRATA_TRAIN_METRICS_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/status.h"

namespace strata::train {

struct StepMetrics {
  int64_t step = 0;                // 1-based
  double loss = 0;                 // mean over the label tokens of the window
  double grad_norm = 0;            // global, before clipping
  double lr = 0;                   // used in this step
  int64_t tokens = 0;              // label tokens of all ranks
  int64_t skipped_steps = 0;       // of this run so far, as loss or gradients were not finite
  double loss_scale = 1;           // of this step; 1 without one
  double tokens_per_s = 0;         // tokens / step_s
  double step_s = 0;               // whole step on rank 0
  double data_s = 0;               // of it, waiting for data
  double comm_s = 0;               // of it, waiting for collectives
  uint64_t sent_bytes = 0;         // by rank 0, for collectives
  uint64_t device_bytes = 0;       // in use after the step, all tags, rank 0
  uint64_t device_peak_bytes = 0;  // largest so far
  uint64_t host_peak_bytes = 0;    // largest resident size of the process so far
};

// Appends to `path`, one line a step, flushed.
class MetricsFile {
 public:
  // Keeps the lines of steps before `first_step` (a resumed run), drops the others.
  static Result<MetricsFile> open(const std::string& path, int64_t first_step);
  Status append(const StepMetrics& metrics);

 private:
  MetricsFile(std::string path, std::ofstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  std::ofstream file_;
};

struct RankSummary {
  uint64_t param_bytes = 0;
  uint64_t grad_bytes = 0;
  uint64_t optimizer_bytes = 0;
  uint64_t gathered_peak_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t sent_bytes_per_step = 0;
};

struct Summary {
  std::string status = "completed";  // or "failed"
  int64_t steps = 0;
  int64_t skipped_steps = 0;   // of them, without an update
  double loss_scale = 1;       // of the last step
  std::string precision;       // as --precision
  double final_loss = 0;       // of the last step that was not skipped
  std::vector<double> losses;  // one a step of this run, full precision
  std::string weight_hash;     // XXH3-64 of all fp32 parameters in name order, 16 hex digits
  std::vector<RankSummary> ranks;
  std::string strategy;  // name and options, for example "fsdp:reshard_after_forward=false"
  struct Plugin {
    std::string path, id, version, abi;
  } plugin;
  double wall_s = 0;        // from the start of the command
  double first_step_s = 0;  // from the start of the command to the end of the first step
};

// The JSON text of a summary.
std::string to_json(const Summary& summary);

}  // namespace strata::train

#endif  // STRATA_TRAIN_METRICS_H_
