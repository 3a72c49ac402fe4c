// One training step: forward and backward of the window's micro-batches, the norm, the update.
#ifndef STRATA_TRAIN_STEPPER_H_
#define STRATA_TRAIN_STEPPER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "strata/base/status.h"
#include "strata/device/host.h"
#include "strata/optim/clipping.h"
#include "strata/optim/loss_scale.h"
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
  double loss_scale = 1;  // that of this step
  // Of a step that was skipped without a dynamic loss scale: parameters whose gradients are not
  // finite, as "'a', 'b' and 3 more".
  std::string nonfinite;
  // What this rank put on the wire for parameters and gradients; the few numbers of the step itself
  // (norm, loss, tokens) are left out.
  uint64_t sent_bytes = 0;
};

struct StepperOptions {
  optim::Clipping clipping;
  bool skips_nonfinite = false;  // instead of an error
  // Of fp16. A scale multiplies the mean loss of a micro-batch, as elsewhere; since losses are sums
  // here, the sum is multiplied by scale / n, where n is `micro_batch_tokens`, the same on every
  // rank, rounded up to a power of two.
  optim::LossScale* loss_scale = nullptr;  // dynamic; an overflow skips the step
  std::optional<double> fixed_loss_scale = {};
  int64_t micro_batch_tokens = 1;
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
  //           kInternal         loss or norm is not finite, or gradients overflow at the smallest
  //                             loss scale; weights and moments are as before, parameters are named
  //           what the session returns
  Result<StepResult> step(std::span<const zoo::Batch> micro_batches, double learning_rate);

 private:
  // Takes the loss scale of the next step.
  void begin_scale();
  Result<StepResult> reduce(double loss_sum, int64_t tokens);
  // Whether a step whose loss or norm is not finite ends the run.
  Status check_nonfinite(StepResult& result);
  Result<std::string> nonfinite_parameters();
  Status update(const StepResult& result, double learning_rate);

  strategy::Session& session_;
  device::Host& host_;
  zoo::Model& model_;
  optim::Optimizer& optimizer_;
  StepperOptions options_;
  SessionReducer reducer_;
  double loss_scale_ = 1;  // of this step
  double multiplier_ = 1;  // of the sum of losses in backward, in this step
};

}  // namespace strata::train

#endif  // STRATA_TRAIN_STEPPER_H_
