// Memory of F32, BF16 and F16 as fp32 numbers.
#ifndef STRATA_TESTS_WORLD_TOY_DTYPES_H_
#define STRATA_TESTS_WORLD_TOY_DTYPES_H_

#include <cstdint>
#include <vector>

#include "strata/device/cpu_kernels.h"

namespace strata::tests {

inline uint64_t size_of(int32_t dtype) { return dtype == STRATA_DTYPE_F32 ? 4 : 2; }

// `numel` elements behind the first-th, in fp32.
inline std::vector<float> load(const void* data, uint64_t first, uint64_t numel, int32_t dtype) {
  std::vector<float> values(numel);
  const char* from = static_cast<const char*>(data) + first * size_of(dtype);
  if (numel > 0) device::cast_elements(values.data(), STRATA_DTYPE_F32, from, dtype, numel);
  return values;
}

// The same way back, rounded to nearest even.
inline void store(void* data, uint64_t first, const std::vector<float>& values, int32_t dtype) {
  char* to = static_cast<char*>(data) + first * size_of(dtype);
  if (values.empty()) return;
  device::cast_elements(to, dtype, values.data(), STRATA_DTYPE_F32, values.size());
}

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_TOY_DTYPES_H_
