#include "strata/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata::optim {

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup_steps) {
    return s.learning_rate * static_cast<double>(step) / static_cast<double>(s.warmup_steps);
  }
  const double rest = static_cast<double>(std::max<int64_t>(s.total_steps - s.warmup_steps, 1));
  const double progress = std::min(static_cast<double>(step - s.warmup_steps) / rest, 1.0);
  if (s.kind == "linear") return s.learning_rate * (1.0 - progress);
  if (s.kind == "cosine") {
    return s.learning_rate * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
  }
  return s.learning_rate;
}

}  // namespace strata::optim
