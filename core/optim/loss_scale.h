// The dynamic loss scale of fp16 training: so large that small gradients do not vanish, so small
// that large ones do not overflow.
//
// Two rules are in use, and differ in when they count:
//
//   rule        grows (good steps in a row)                shrinks
//   kDeepSpeed  at the (interval + 1)-th after the start   at an overflow that finds the allowance
//               or an overflow, then every `interval`      (hysteresis) used up, not below
//               min_scale
//   kTorch      at every `interval`-th                     at every overflow, not below min_scale
//
// kDeepSpeed's first hysteresis - 1 overflows only use up the allowance, which is refilled when the
// scale grows (or, with consecutive_hysteresis, at each good step); they restart the count all the
// same. After DeepSpeed's DynamicLossScaler and torch.amp.GradScaler; the reference traces in
// tests/data/parity/loss-scale hold step by step. torch knows no smallest scale: min_scale = 0.
#ifndef STRATA_OPTIM_LOSS_SCALE_H_
#define STRATA_OPTIM_LOSS_SCALE_H_

#include <cstdint>

namespace strata::optim {

enum class LossScaleRule { kDeepSpeed, kTorch };

struct LossScaleOptions {
  LossScaleRule rule = LossScaleRule::kDeepSpeed;
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 1000;
  int64_t hysteresis = 2;               // kDeepSpeed, at least 1
  bool consecutive_hysteresis = false;  // kDeepSpeed
  double min_scale = 1;
};

// All that a resumed run needs to go on as if it had not stopped.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;  // in a row
  int64_t hysteresis = 1;  // overflows left before the scale shrinks, this one included

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

class LossScale {
 public:
  enum class Outcome {
    kGood,       // the step may be done
    kSkip,       // it may not; the next one has a chance
    kAtMinimum,  // it may not, and the scale was as small as it gets
  };

  explicit LossScale(const LossScaleOptions& options);

  // What the loss of the next step is multiplied by: finite as fp32.
  double scale() const { return state_.scale; }

  // Ends a step, of which all ranks know whether a gradient overflowed.
  Outcome update(bool overflowed);

  const LossScaleOptions& options() const { return options_; }
  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }

 private:
  bool grows_at_this_good_step();
  Outcome shrink();

  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace strata::optim

#endif  // STRATA_OPTIM_LOSS_SCALE_H_
