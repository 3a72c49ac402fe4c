// A whole training run of one rank: the composition root of `strata train`.
#ifndef STRATA_TRAIN_RUN_H_
#define STRATA_TRAIN_RUN_H_

#include <string>

#include "strata/base/status.h"
#include "strata/config/config.h"
#include "strata/train/metrics.h"
#include "strata/train/rank.h"

namespace strata::train {

// How a run ended, and whether a step had begun (errors before are the user's to mend, with nothing
// written).
struct RunOutcome {
  Status status;
  bool has_started = false;
  Summary summary;
};

// Whom a run tells how it goes; called on rank 0 only.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // A table or a paragraph, ended by a newline.
  virtual void text(const std::string& text) = 0;
  // A step of first_step .. last_step is done.
  virtual void step(const StepMetrics& metrics, int64_t first_step, int64_t last_step) = 0;
};

// Loads, attaches, trains, saves. Rank 0 writes. [collective]
RunOutcome run_training(const config::TrainConfig& config, const Rank& rank, RunObserver& observer);

}  // namespace strata::train

#endif  // STRATA_TRAIN_RUN_H_
