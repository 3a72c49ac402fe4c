#include "strata/optim/clipping.h"

#include <algorithm>
#include <cmath>

#include "strata/optim/kernels.h"
#include "strata/optim/norm.h"

namespace strata::optim {
namespace {

// The largest magnitude over all ranks; infinity if a gradient is not finite.
Result<double> largest_gradient(const std::vector<model::Partition>& partitions, Reducer& reducer) {
  double largest = 0;
  for (const model::Partition& partition : partitions) {
    if (!is_updated(partition)) continue;
    const Gradient gradient(partition);
    float scratch[kChunk];
    for_each_chunk(0, partition.numel, [&](int64_t begin, int64_t numel) {
      const float* const values = gradient.read(begin, numel, scratch);
      largest = std::max(largest, kernels::largest_magnitude(values, numel));
    });
  }
  STRATA_RETURN_IF_ERROR(reducer.max(std::span<double>(&largest, 1)));
  return largest;
}

}  // namespace

Result<double> gradient_norm(const std::vector<model::Partition>& partitions, double type,
                             std::span<int64_t> counts, Reducer& reducer) {
  // Powers of any other p overflow; so they are taken of parts of the largest.
  double largest = 1;
  if (type != 1 && type != 2) {
    STRATA_ASSIGN_OR_RETURN(largest, largest_gradient(partitions, reducer));
  }
  const bool is_summed = type != kInfinityNorm && largest > 0 && std::isfinite(largest);
  NormAccumulator sum(type, largest);
  if (is_summed) {
    for (const model::Partition& partition : partitions) sum.add(partition);
  }
  std::vector<int64_t> numbers = sum.limbs();
  numbers.insert(numbers.end(), counts.begin(), counts.end());
  STRATA_RETURN_IF_ERROR(reducer.sum(numbers));
  std::copy(numbers.begin() + NormAccumulator::kNumbers, numbers.end(), counts.begin());
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  if (!is_summed) return largest;
  return NormAccumulator::norm(std::span(numbers).first(NormAccumulator::kNumbers), type, largest);
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

GradientScale gradient_scale(const Clipping& clipping, double norm, double divisor) {
  if (clipping.max_value > 0) return {1.0 / divisor, clipping.max_value};
  if (clipping.max_norm > 0) return {clip_factor(norm, clipping.max_norm) / divisor};
  return {1.0 / divisor};
}

}  // namespace strata::optim
