// Learning rates: functions of the step alone.
#ifndef STRATA_OPTIM_SCHEDULE_H_
#define STRATA_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <string>

namespace strata::optim {

struct Schedule {
  std::string kind = "linear";  // linear, cosine, constant
  double learning_rate = 5e-5;  // the largest
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
};

// The rate of step k = 0, 1, ...: learning_rate * k / warmup_steps during warm-up (so the first
// step has rate 0), then by kind:
//   constant   learning_rate
//   linear     learning_rate * (total - k) / (total - warmup), down to 0
//   cosine     learning_rate * (1 + cos(pi * (k - warmup) / (total - warmup))) / 2
// As get_*_schedule_with_warmup of transformers.
double learning_rate(const Schedule& schedule, int64_t step);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_SCHEDULE_H_
