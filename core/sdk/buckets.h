// Which gradients are reduced together: consecutive units, in the order in which backward ends
// them, until a bucket is full.
//
//   bytes 3 1 1 4 9 1, first cap 2, cap 5  ->  [3] [1 1 4] [9] [1]
//
// A bucket is closed by the unit that reaches its cap, as in PyTorch's DDP (Li et al. 2020). The
// first one is small, so that reduction starts early.
#ifndef STRATA_SDK_BUCKETS_H_
#define STRATA_SDK_BUCKETS_H_

#include <cstdint>
#include <vector>

namespace strata::sdk {

// For each unit the index of its bucket: 0, 1, ... without gaps. A cap of 0 gives every unit a
// bucket of its own.
inline std::vector<uint32_t> assign_buckets(const std::vector<uint64_t>& bytes, uint64_t first_cap,
                                            uint64_t cap) {
  std::vector<uint32_t> buckets;
  uint32_t bucket = 0;
  uint64_t filled = 0;
  for (const uint64_t size : bytes) {
    buckets.push_back(bucket);
    filled += size;
    if (filled >= (bucket == 0 ? first_cap : cap)) {
      ++bucket;
      filled = 0;
    }
  }
  return buckets;
}

}  // namespace strata::sdk

#endif  // STRATA_SDK_BUCKETS_H_
