// One training step: forward and backward of the window's micro-batches, the norm, the update.
#ifndef STRATA_TRAIN_STEPPER_H_
#define STRATA_TRAIN_STEPPER_H_

#include <cstdint>
#include <span>

#include "strata/base/status.h"
#include "strata/device/host.h"
#include "strata/optim/adamw.h"
#include "strata/strategy/session.h"
#include "strata/zoo/model.h"

namespace strata::train {

struct StepResult {
  double loss = 0;       // mean over the label tokens of the window, all ranks
  double grad_norm = 0;  // of the mean's gradient, before clipping
  int64_t tokens = 0;    // label tokens of the window, all ranks
  // What this rank put on the wire for parameters and gradients; the few numbers of the step itself
  // (norm, loss, tokens) are left out.
  uint64_t sent_bytes = 0;
};

class Stepper {
 public:
  // `max_grad_norm` 0: no clipping. All of them outlive the stepper.
  Stepper(strategy::Session& session, device::Host& host, zoo::Model& model,
          optim::AdamW& optimizer, double max_grad_norm);

  // [collective]: every rank gives the same number of micro-batches, at least one; a batch without
  // a label token is legal.
  //
  // Returns   kInvalidArgument  no rank has a label token in the whole window
  //           kInternal         loss or norm is not finite; weights and moments are as before
  //           what the session returns
  Result<StepResult> step(std::span<const zoo::Batch> micro_batches, double learning_rate);

 private:
  Result<StepResult> reduce(double loss_sum, int64_t tokens);

  strategy::Session& session_;
  device::Host& host_;
  zoo::Model& model_;
  optim::AdamW& optimizer_;
  double max_grad_norm_;
};

}  // namespace strata::train

#endif  // STRATA_TRAIN_STEPPER_H_
