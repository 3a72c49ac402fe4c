#include "strata/optim/optimizer.h"

#include <cmath>

#include "strata/base/check.h"

namespace strata::optim {

Status Optimizer::step(double learning_rate, const GradientScale& scale, Reducer& reducer) {
  STRATA_CHECK(std::isfinite(scale.factor) && scale.factor > 0) << "factor " << scale.factor;
  ++step_count_;
  return update(learning_rate, scale, reducer);
}

Result<float*> Optimizer::add_state(const AllocateState& allocate, StateTensor state) {
  STRATA_ASSIGN_OR_RETURN(StateMemory memory, allocate(state.numel));
  state.data = memory.get();
  states_.push_back(std::move(state));
  memory_.push_back(std::move(memory));
  return memory_.back().get();
}

}  // namespace strata::optim
