// Learning rates: functions of the step alone.
#ifndef STRATA_OPTIM_SCHEDULE_H_
#define STRATA_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/status.h"

namespace strata::optim {

struct Schedule {
  std::string kind = "linear";  // one of those below
  double learning_rate = 5e-5;  // the largest
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double end = 1e-7;                   // polynomial: rate at the end
  double power = 1;                    // polynomial
  double gamma = 1;                    // exponential: factor of each step
  int64_t timescale = 0;               // inverse_sqrt; 0: the warm-up, or 10000 without one
  int64_t decay_steps = 0;             // wsd
  std::string decay_type = "cosine";   // wsd: cosine, linear, 1-sqrt
  double min_ratio = 0;                // wsd: the rate at the end, as a part of the largest
  std::string warmup_type = "linear";  // linear; log only with WarmupLR
  double warmup_min = 0;               // WarmupLR: rate of step 0
  bool warmup_init = false;            // adafactor: warm up by 1e-6 a step instead of from 1e-2
};

// The rate of step k = 0, 1, ...
//
// Warm-up, k < warmup: learning_rate * k / warmup, so the first step has rate 0. Then by kind, with
// t = (k - warmup) / (total - warmup), at most 1:
//   constant      learning_rate
//   linear        learning_rate * (1 - t)
//   cosine        learning_rate * (1 + cos(pi t)) / 2
//   polynomial    end + (learning_rate - end) * (1 - t)^power
//   inverse_sqrt  learning_rate * sqrt(timescale / (k - warmup + timescale))
//   exponential   learning_rate * gamma^(k - warmup)
//   wsd           learning_rate up to step total - decay_steps; then, with d from 0 to 1,
//                 learning_rate * (min_ratio + (1 - min_ratio) * f(d)), where f is 1 - d,
//                 (1 + cos(pi d)) / 2 or 1 - sqrt(d). Its warm-up begins at min_ratio, too
// as get_*_schedule of transformers has them (exponential: torch's ExponentialLR behind a warm-up);
//   WarmupLR      warmup_min + (learning_rate - warmup_min) * w, where w is log(k + 1) /
//   log(warmup),
//                 or k / warmup by warmup_type, and then learning_rate: DeepSpeed's
//   adafactor     min(1e-2 or 1e-6 (k + 1), 1 / sqrt(k + 1)): the relative step of Shazeer and
//   Stern
//                 2018; learning_rate and warm-up have no part in it
double learning_rate(const Schedule& schedule, int64_t step);

// What can be wrong with a schedule once the number of steps is known.
//
// Returns   kInvalidArgument  warm-up and decay longer than the run; an end above the largest rate
Status check_schedule(const Schedule& schedule);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_SCHEDULE_H_
