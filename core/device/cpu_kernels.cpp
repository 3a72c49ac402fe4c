#include "strata/device/cpu_kernels.h"

#include <bit>
#include <cstring>

namespace strata::device {
namespace {

struct Loops {
  using Binary = void (*)(void* dst, const void* src, uint64_t count);
  using Unary = void (*)(void* dst, float factor, uint64_t count);
  Binary cast[3][3];
  Binary add[3][3];
  Unary scale[3];
};

static_assert(STRATA_DTYPE_F32 == 1 && STRATA_DTYPE_BF16 == 2 && STRATA_DTYPE_F16 == 3);

namespace baseline {
#include "strata/device/cpu_kernels_loops.inc"
}  // namespace baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#include "strata/device/cpu_kernels_loops.inc"
}  // namespace avx2
#pragma GCC pop_options

const Loops& loops() {
  static const Loops& chosen = __builtin_cpu_supports("avx2") ? avx2::kLoops : baseline::kLoops;
  return chosen;
}
#else
const Loops& loops() { return baseline::kLoops; }
#endif

uint64_t element_size(int32_t dtype) { return dtype == STRATA_DTYPE_F32 ? 4 : 2; }

}  // namespace

void cast_elements(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
                   uint64_t count) {
  if (dst_dtype == src_dtype) {
    std::memcpy(dst, src, count * element_size(dst_dtype));
  } else {
    loops().cast[dst_dtype - 1][src_dtype - 1](dst, src, count);
  }
}

void add_elements(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
                  uint64_t count) {
  loops().add[dst_dtype - 1][src_dtype - 1](dst, src, count);
}

void scale_elements(void* dst, int32_t dtype, float factor, uint64_t count) {
  loops().scale[dtype - 1](dst, factor, count);
}

}  // namespace strata::device
