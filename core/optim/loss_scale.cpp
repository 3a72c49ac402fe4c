#include "strata/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "strata/base/check.h"

namespace strata::optim {

LossScale::LossScale(const LossScaleOptions& options) : options_(options) {
  STRATA_CHECK(options.init_scale > 0 && options.growth_factor >= 1 && options.backoff_factor > 0 &&
               options.backoff_factor < 1 && options.growth_interval >= 1 &&
               options.hysteresis >= 1 && options.min_scale >= 0)
      << "loss scale options";
  state_ = {options.init_scale, 0, options.hysteresis};
}

LossScale::Outcome LossScale::update(bool overflowed) {
  if (overflowed) return shrink();
  if (options_.consecutive_hysteresis) state_.hysteresis = options_.hysteresis;
  if (grows_at_this_good_step()) {
    state_.hysteresis = options_.hysteresis;
    // The loss is scaled in fp32.
    const auto grown = static_cast<float>(state_.scale * options_.growth_factor);
    if (std::isfinite(grown)) state_.scale = grown;
  }
  return Outcome::kGood;
}

bool LossScale::grows_at_this_good_step() {
  if (options_.rule == LossScaleRule::kTorch) {
    state_.good_steps = (state_.good_steps + 1) % options_.growth_interval;
    return state_.good_steps == 0;
  }
  const int64_t before = state_.good_steps++;
  return before > 0 && before % options_.growth_interval == 0;
}

LossScale::Outcome LossScale::shrink() {
  state_.good_steps = 0;
  if (options_.rule == LossScaleRule::kDeepSpeed && state_.hysteresis > 1) {
    --state_.hysteresis;
    return Outcome::kSkip;
  }
  const auto shrunk = static_cast<float>(state_.scale * options_.backoff_factor);
  if (state_.scale <= options_.min_scale || shrunk == 0) return Outcome::kAtMinimum;
  state_.scale = std::max(double{shrunk}, options_.min_scale);
  return Outcome::kSkip;
}

}  // namespace strata::optim
