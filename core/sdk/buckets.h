// Which gradients are reduced together: consecutive units, in the order in which backward ends
// them, until a bucket is full.
//
//   bytes 3 1 1 4 9 1, first cap 2, cap 5  ->  [3] [1 1 4] [9] [1]
//
// A bucket is closed by the unit that reaches its cap, as in PyTorch's DDP (Li et al. 2020), and in
// front of a unit of another kind, whose gradients have other dtypes. The first one is small, so
// that reduction starts early.
#ifndef STRATA_SDK_BUCKETS_H_
#define STRATA_SDK_BUCKETS_H_

#include <cstdint>
#include <vector>

namespace strata::sdk {

// For each unit the index of its bucket: 0, 1, ... without gaps. A cap of 0 gives every unit a
// bucket of its own. `kinds` has one number a unit, or none if all are of one kind.
inline std::vector<uint32_t> assign_buckets(const std::vector<uint64_t>& bytes, uint64_t first_cap,
                                            uint64_t cap, const std::vector<uint64_t>& kinds = {}) {
  std::vector<uint32_t> buckets;
  uint32_t bucket = 0;
  uint64_t filled = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (filled > 0 && !kinds.empty() && kinds[i] != kinds[i - 1]) {
      ++bucket;
      filled = 0;
    }
    buckets.push_back(bucket);
    filled += bytes[i];
    if (filled >= (bucket == 0 ? first_cap : cap)) {
      ++bucket;
      filled = 0;
    }
  }
  return buckets;
}

}  // namespace strata::sdk

#endif  // STRATA_SDK_BUCKETS_H_
