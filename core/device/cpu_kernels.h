// Elementwise loops over F32, BF16 and F16 memory, in the widest vectors that the machine has.
//
// The 16-bit formats are computed with in fp32; each result is rounded to nearest, ties to even.
// NaN stays NaN with its sign; too large becomes infinity; subnormals are kept.
#ifndef STRATA_DEVICE_CPU_KERNELS_H_
#define STRATA_DEVICE_CPU_KERNELS_H_

#include <cstdint>

#include "strata/abi/types.h"

namespace strata::device {

// Whether the loops below know the dtype: F32, BF16, F16.
constexpr bool is_kernel_dtype(int32_t dtype) {
  return dtype == STRATA_DTYPE_F32 || dtype == STRATA_DTYPE_BF16 || dtype == STRATA_DTYPE_F16;
}

// dst[i] = src[i]. REQUIRES of all three: is_kernel_dtype, ranges that do not overlap.
void cast_elements(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
                   uint64_t count);
// dst[i] += src[i], where src is first rounded to dst's dtype.
void add_elements(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t count);
// dst[i] *= factor.
void scale_elements(void* dst, int32_t dtype, float factor, uint64_t count);

}  // namespace strata::device

#endif  // STRATA_DEVICE_CPU_KERNELS_H_
