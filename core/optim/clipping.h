// Clipping of gradients: the norm over all ranks, which the log shows, and what is done with it.
#ifndef STRATA_OPTIM_CLIPPING_H_
#define STRATA_OPTIM_CLIPPING_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "strata/base/status.h"
#include "strata/model/partition.h"
#include "strata/optim/gradients.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {

inline constexpr double kInfinityNorm = std::numeric_limits<double>::infinity();

// By norm or by value, not both.
struct Clipping {
  double max_norm = 0;   // 0: not by norm
  double norm_type = 2;  // p >= 0.1, or kInfinityNorm; of the norm in the log, too
  double max_value = 0;  // 0: not by value
};

// The norm of type `type` of all gradients of all ranks, the same bits on every rank and however
// they are sliced; NaN if any is not finite. `counts` are summed over all ranks on the way.
// [collective]
Result<double> gradient_norm(const std::vector<model::Partition>& partitions, double type,
                             std::span<int64_t> counts, Reducer& reducer);

// min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm);

// What the update does with gradients that are sums: it divides them by `divisor` (label tokens),
// and clips. `norm` is that of the gradients so divided.
GradientScale gradient_scale(const Clipping& clipping, double norm, double divisor);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_CLIPPING_H_
