#include "strata/optim/norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "strata/base/check.h"

namespace strata::optim {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kGrainBlocks = 4096;  // 1 MiB of gradients
constexpr int64_t kBatch = 64;          // blocks at a time: 16 KiB, which stay in the cache
constexpr int kLowest = -320;           // exponent of limb 0
constexpr int kMantissaBits = 52;
constexpr uint64_t kMantissaMask = (uint64_t{1} << kMantissaBits) - 1;

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
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto exponent = static_cast<int>(bits >> kMantissaBits);
  if (exponent == 0) return;  // zero, or far below the lowest limb
  // value = mantissa * 2^(exponent - 1075), and so mantissa * 2^shift of the lowest limb's units.
  const uint64_t mantissa = (bits & kMantissaMask) | (kMantissaMask + 1);
  const int shift = exponent - 1075 - kLowest;
  if (shift <= -64) return;
  if (shift < 0) {
    add_at(0, mantissa >> -shift);
  } else {
    add_at(shift / 32, static_cast<unsigned __int128>(mantissa) << (shift % 32));
  }
  // Each addition adds less than 2^32 to a limb.
  if (++additions_ == int64_t{1} << 29) normalize();
}

void ExactSum::add_at(int limb, unsigned __int128 units) {
  STRATA_CHECK(limb + 2 < kLimbs) << "a sum of squares beyond 2^350";
  int64_t* to = &limbs_[static_cast<size_t>(limb)];
  to[0] += static_cast<int64_t>(static_cast<uint64_t>(units) & 0xFFFFFFFFULL);
  to[1] += static_cast<int64_t>(static_cast<uint64_t>(units >> 32) & 0xFFFFFFFFULL);
  to[2] += static_cast<int64_t>(static_cast<uint64_t>(units >> 64));
}

void ExactSum::add(ExactSum other) {
  other.normalize();
  normalize();
  for (size_t i = 0; i < limbs_.size(); ++i) limbs_[i] += other.limbs_[i];
  additions_ = 1;
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
  std::mutex mutex;
  at::parallel_for(0, last - first, kGrainBlocks, [&](int64_t begin, int64_t end) {
    ExactSum sum;
    int64_t not_finite = 0;
    double sums[kBatch];
    for (int64_t batch = begin; batch < end; batch += kBatch) {
      const int64_t count = std::min(kBatch, end - batch);
      block_sums(values + batch * kBlock, count, sums);
      for (int64_t i = 0; i < count; ++i) {
        if (std::isfinite(sums[i])) {
          sum.add(sums[i]);
        } else {
          ++not_finite;
        }
      }
    }
    const std::lock_guard lock(mutex);  // threads come in any order: the sum is exact
    sum_.add(sum);
    not_finite_blocks_ += not_finite;
  });
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
