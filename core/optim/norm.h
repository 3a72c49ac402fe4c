// The global norm of gradients, the same number to the last bit however they are sliced over ranks.
//
// Squares are summed in double over aligned blocks of 64 elements, in a fixed order inside a block;
// slices begin and end at multiples of 64, so every block lies on one rank and its sum does not
// depend on the slicing. Block sums are then added exactly, as integers: no order of additions
// changes the result.
#ifndef STRATA_OPTIM_NORM_H_
#define STRATA_OPTIM_NORM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/model/partition.h"

namespace strata::optim {

// An exact sum of non-negative doubles below 2^384, in steps of 2^-320 (squares of fp32 lie between
// 2^-298 and 2^256; what a block's rounding leaves below 2^-320 is cut off). Limb i counts units of
// 2^(32 i - 320).
class ExactSum {
 public:
  static constexpr int kLimbs = 22;

  // REQUIRES: value is finite and not negative.
  void add(double value);
  void add(ExactSum other);
  // Limbs below 2^32 each (but the last): so that up to 2^31 ranks can be summed without overflow.
  void normalize();
  const std::array<int64_t, kLimbs>& limbs() const { return limbs_; }
  // The sum, rounded once. REQUIRES: kLimbs limbs, each of any non-negative size.
  static double value(std::span<const int64_t> limbs);

 private:
  void add_at(int limb, unsigned __int128 units);

  std::array<int64_t, kLimbs> limbs_{};
  int64_t additions_ = 0;
};

class NormAccumulator {
 public:
  // Adds the fp32 gradient of a partition; of replicated ones the share of this replica, so that
  // each block counts once over all ranks. Frozen partitions add nothing.
  void add(const model::Partition& partition);
  // For an int64 SUM over all ranks: limbs, then the number of blocks that are not finite.
  std::vector<int64_t> limbs();
  // The L2 norm from the reduced limbs; NaN if any element was not finite.
  static double norm(std::span<const int64_t> reduced);

 private:
  ExactSum sum_;
  int64_t not_finite_blocks_ = 0;
};

// min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_NORM_H_
