// Sums behind norms, the same numbers to the last bit however gradients are sliced over ranks.
//
// Squares (or other powers) are summed in double over aligned blocks of 64 elements, in a fixed
// order inside a block; slices begin and end at multiples of 64, so every block lies on one rank
// and its sum does not depend on the slicing. Block sums are then added exactly, as integers: no
// order of additions changes the result.
#ifndef STRATA_OPTIM_NORM_H_
#define STRATA_OPTIM_NORM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/model/partition.h"
#include "strata/optim/gradients.h"

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

// The sum behind a norm of type p: over |g| for p = 1, g^2 for p = 2, and (|g| / largest)^p for any
// other, where `largest` is the largest magnitude of all ranks.
class NormAccumulator {
 public:
  static constexpr size_t kNumbers = ExactSum::kLimbs + 1;

  // REQUIRES: type is 1 or 2, or positive and `largest` > 0 and finite.
  explicit NormAccumulator(double type = 2, double largest = 1) : type_(type), largest_(largest) {}

  // Adds the gradient of a partition; of replicated ones the share of this replica, so that
  // each block counts once over all ranks. Frozen partitions add nothing.
  void add(const model::Partition& partition);
  // Adds elements [begin, end), multiples of 64, on all threads.
  void add(const Values& values, int64_t begin, int64_t end);
  // kNumbers numbers for an int64 SUM over all ranks: limbs, then the number of blocks that are not
  // finite.
  std::vector<int64_t> limbs();
  // The norm from the reduced limbs; NaN if any element was not finite.
  static double norm(std::span<const int64_t> reduced, double type = 2, double largest = 1);

 private:
  void block_sums(const float* values, int64_t blocks, double* sums) const;

  double type_;
  double largest_;
  ExactSum sum_;
  int64_t not_finite_blocks_ = 0;
};

// On all threads.
bool all_are_finite(std::span<const float> values);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_NORM_H_
