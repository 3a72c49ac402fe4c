// The progress line of a run: rewritten in place on a terminal, one line every few seconds
// elsewhere.
#ifndef STRATA_APPS_PROGRESS_H_
#define STRATA_APPS_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "strata/train/metrics.h"

namespace strata::apps {

class Progress {
 public:
  // Writes to the terminal (or file) behind `descriptor`.
  Progress(int descriptor, int64_t first_step, int64_t last_step);
  ~Progress();

  void update(const train::StepMetrics& metrics);
  // Leaves the last state of the line standing.
  void finish();

  // `elapsed_s`: seconds since the first step was done. For example "step 120/400 [######------]
  // loss 5.4321  norm 0.91  lr 3.0e-04  8123 tok/s  ETA 0:35".
  static std::string line(const train::StepMetrics& metrics, int64_t first_step, int64_t last_step,
                          double elapsed_s);

 private:
  using Clock = std::chrono::steady_clock;

  int descriptor_;
  bool is_terminal_;
  int64_t first_step_;
  int64_t last_step_;
  Clock::time_point begin_;
  Clock::time_point last_write_;
  bool has_open_line_ = false;
};

}  // namespace strata::apps

#endif  // STRATA_APPS_PROGRESS_H_
