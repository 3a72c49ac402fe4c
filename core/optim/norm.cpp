#include "strata/optim/norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "strata/base/check.h"
#include "strata/optim/kernels.h"

namespace strata::optim {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kGrainBlocks = 4096;  // 1 MiB of gradients
constexpr int kLowest = -320;           // exponent of limb 0
constexpr int kMantissaBits = 52;
constexpr uint64_t kMantissaMask = (uint64_t{1} << kMantissaBits) - 1;

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
  if (!is_updated(partition)) return;
  const Gradient gradient(partition);
  const int64_t blocks = partition.numel / kBlock;
  add([&](int64_t begin, int64_t numel,
          float* scratch) { return gradient.read(begin, numel, scratch); },
      blocks * partition.replica / partition.replicas * kBlock,
      blocks * (partition.replica + 1) / partition.replicas * kBlock);
}

void NormAccumulator::add(const Values& values, int64_t begin, int64_t end) {
  std::mutex mutex;
  at::parallel_for(begin / kBlock, end / kBlock, kGrainBlocks, [&](int64_t first, int64_t last) {
    ExactSum sum;
    int64_t not_finite = 0;
    float scratch[kChunk];
    double sums[kChunk / kBlock];
    for_each_chunk(first * kBlock, last * kBlock, [&](int64_t at, int64_t numel) {
      block_sums(values(at, numel, scratch), numel / kBlock, sums);
      for (const double value : std::span(sums).first(static_cast<size_t>(numel / kBlock))) {
        if (std::isfinite(value)) {
          sum.add(value);
        } else {
          ++not_finite;
        }
      }
    });
    const std::lock_guard lock(mutex);  // threads come in any order: the sum is exact
    sum_.add(sum);
    not_finite_blocks_ += not_finite;
  });
}

void NormAccumulator::block_sums(const float* values, int64_t blocks, double* sums) const {
  if (type_ == 2) {
    kernels::sums_of_squares(values, blocks, sums);
  } else if (type_ == 1) {
    kernels::sums_of_magnitudes(values, blocks, sums);
  } else {
    kernels::sums_of_powers(values, blocks, largest_, type_, sums);
  }
}

std::vector<int64_t> NormAccumulator::limbs() {
  sum_.normalize();
  std::vector<int64_t> out(sum_.limbs().begin(), sum_.limbs().end());
  out.push_back(not_finite_blocks_);
  return out;
}

double NormAccumulator::norm(std::span<const int64_t> reduced, double type, double largest) {
  STRATA_CHECK(reduced.size() == kNumbers) << reduced.size();
  if (reduced.back() > 0) return std::numeric_limits<double>::quiet_NaN();
  const double sum = ExactSum::value(reduced.first(ExactSum::kLimbs));
  if (type == 2) return std::sqrt(sum);
  if (type == 1) return sum;
  return largest * std::pow(sum, 1 / type);
}

bool all_are_finite(std::span<const float> values) {
  std::atomic<bool> are_finite = true;
  at::parallel_for(0, static_cast<int64_t>(values.size()), kGrainBlocks * kBlock,
                   [&](int64_t begin, int64_t end) {
                     if (!kernels::all_are_finite(values.data() + begin, end - begin)) {
                       are_finite = false;
                     }
                   });
  return are_finite;
}

}  // namespace strata::optim
