// One training step: forward and backward of the window's micro-batches, the norm, the update.
#ifndef STRATA_TRAIN_STEPPER_H_
#define STRATA_TRAIN_STEPPER_H_

#include <cstdint>
#include <span>

#include "strata/base/status.h"
#include "strata/device/host.h"
#include "strata/optim/clipping.h"
#include "strata/optim/optimizer.h"
#include "strata/strategy/session.h"
#include "strata/train/optimization.h"
#include "strata/zoo/model.h"

namespace strata::train {

struct StepResult {
  double loss = 0;       // mean over the label tokens of the window, all ranks
  double grad_norm = 0;  // of the mean's gradient, before clipping, of the type that clipping has
  int64_t tokens = 0;    // label tokens of the window, all ranks
  // Loss or norm is not finite, and so nothing was updated.
  bool is_skipped = false;
  // What this rank put on the wire for parameters and gradients; the few numbers of the step itself
  // (norm, loss, tokens) are left out.
  uint64_t sent_bytes = 0;
};

struct StepperOptions {
  optim::Clipping clipping;
  bool skips_nonfinite = false;  // instead of an error
};

class Stepper {
 public:
  // All of them outlive the stepper.
  Stepper(strategy::Session& session, device::Host& host, zoo::Model& model,
          optim::Optimizer& optimizer, const StepperOptions& options);

  // [collective]: every rank gives the same number of micro-batches, at least one; a batch without
  // a label token is legal.
  //
  // Returns   kInvalidArgument  no rank has a label token in the whole window
  //           kInternal         loss or norm is not finite; weights and moments are as before
  //           what the session returns
  Result<StepResult> step(std::span<const zoo::Batch> micro_batches, double learning_rate);

 private:
  Result<StepResult> reduce(double loss_sum, int64_t tokens);
  Status update(const StepResult& result, double learning_rate);

  strategy::Session& session_;
  device::Host& host_;
  zoo::Model& model_;
  optim::Optimizer& optimizer_;
  StepperOptions options_;
  SessionReducer reducer_;
};

}  // namespace strata::train

#endif  // STRATA_TRAIN_STEPPER_H_
