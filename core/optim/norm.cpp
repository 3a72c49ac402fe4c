#include "strata/optim/norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/base/check.h"

namespace strata::optim {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kGrainBlocks = 4096;  // 1 MiB of gradients
constexpr int kLowest = -320;           // exponent of limb 0

// Sum of squares of 64 floats. Eight running sums, then a tree: the compiler's vectors do not
// change the order.
double block_sum(const float* values) {
  double lanes[8] = {};
  for (int64_t i = 0; i < kBlock; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void block_sums(const float* values, int64_t blocks, double* sums) {
  for (int64_t b = 0; b < blocks; ++b) sums[b] = block_sum(values + b * kBlock);
}

}  // namespace

void ExactSum::add(double value) {
  if (value == 0) return;
  int exponent = 0;
  // value = mantissa * 2^exponent with a mantissa of 53 bits.
  const auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const int shift = exponent - 53 - kLowest;
  if (shift + 53 <= 0) return;
  const unsigned __int128 wide = shift >= 0
                                     ? static_cast<unsigned __int128>(mantissa) << (shift % 32)
                                     : static_cast<unsigned __int128>(mantissa) >> -shift;
  const int limb = shift >= 0 ? shift / 32 : 0;
  STRATA_CHECK(limb + 2 < kLimbs) << "a sum of squares beyond 2^350";
  for (int i = 0; i < 3; ++i) {
    limbs_[static_cast<size_t>(limb + i)] +=
        static_cast<int64_t>(static_cast<uint64_t>(wide >> (32 * i)) & 0xFFFFFFFFULL);
  }
  // Each addition adds less than 2^32 to a limb.
  if (++additions_ == int64_t{1} << 29) normalize();
}

void ExactSum::normalize() {
  for (size_t i = 0; i + 1 < limbs_.size(); ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= 0xFFFFFFFFLL;
  }
  additions_ = 0;
}

double ExactSum::value(std::span<const int64_t> limbs) {
  std::vector<int64_t> carried(limbs.begin(), limbs.end());
  for (size_t i = 0; i + 1 < carried.size(); ++i) {
    carried[i + 1] += carried[i] >> 32;
    carried[i] &= 0xFFFFFFFFLL;
  }
  // From the top: the first 96 significant bits decide the rounding to double.
  long double sum = 0;
  for (size_t i = carried.size(); i-- > 0;) {
    sum += std::ldexp(static_cast<long double>(carried[i]), static_cast<int>(32 * i) + kLowest);
  }
  return static_cast<double>(sum);
}

void NormAccumulator::add(const model::Partition& partition) {
  if (partition.gradient == nullptr || !partition.is_trainable) return;
  STRATA_CHECK(partition.gradient_dtype == 1) << "gradient dtype " << partition.gradient_dtype;
  const int64_t blocks = partition.numel / kBlock;
  const int64_t first = blocks * partition.replica / partition.replicas;
  const int64_t last = blocks * (partition.replica + 1) / partition.replicas;
  const auto* values = static_cast<const float*>(partition.gradient) + first * kBlock;
  std::vector<double> sums(static_cast<size_t>(last - first));
  at::parallel_for(0, last - first, kGrainBlocks, [&](int64_t begin, int64_t end) {
    block_sums(values + begin * kBlock, end - begin, sums.data() + begin);
  });
  for (const double sum : sums) {
    if (std::isfinite(sum)) {
      sum_.add(sum);
    } else {
      ++not_finite_blocks_;
    }
  }
}

std::vector<int64_t> NormAccumulator::limbs() {
  sum_.normalize();
  std::vector<int64_t> out(sum_.limbs().begin(), sum_.limbs().end());
  out.push_back(not_finite_blocks_);
  return out;
}

double NormAccumulator::norm(std::span<const int64_t> reduced) {
  STRATA_CHECK(reduced.size() == ExactSum::kLimbs + 1);
  if (reduced.back() > 0) return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(ExactSum::value(reduced.first(ExactSum::kLimbs)));
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

}  // namespace strata::optim
