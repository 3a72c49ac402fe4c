// The element types of parameters and gradients.
#ifndef STRATA_SDK_DTYPES_H_
#define STRATA_SDK_DTYPES_H_

#include <cstdint>

#include "strata/abi/types.h"

namespace strata::sdk {

// What the SDK's strategies compute, reduce and accumulate in: a mask for describe().
inline constexpr uint64_t kTrainedDtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32) |
                                           STRATA_DTYPE_BIT(STRATA_DTYPE_BF16) |
                                           STRATA_DTYPE_BIT(STRATA_DTYPE_F16);

constexpr bool is_trained_dtype(int32_t dtype) {
  return dtype >= 0 && dtype < 64 && (kTrainedDtypes & STRATA_DTYPE_BIT(dtype)) != 0;
}

// Bytes of one element. REQUIRES: is_trained_dtype.
constexpr uint64_t element_bytes(int32_t dtype) { return dtype == STRATA_DTYPE_F32 ? 4 : 2; }

}  // namespace strata::sdk

#endif  // STRATA_SDK_DTYPES_H_
