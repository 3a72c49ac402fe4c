#include "strata/zoo/cpu_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "strata/zoo/cpu_attention.h"

namespace strata::zoo::cpu {
namespace {

struct Loops {
  void (*gelu)(const float*, float*, int64_t);
  void (*gelu_backward)(const float*, const float*, float*, int64_t);
  double (*cross_entropy)(float*, int64_t, int64_t, bool);
  void (*attention)(const AttentionHead&, int64_t, int64_t, float);
  void (*attention_backward)(const AttentionHead&, const AttentionGrads&, int64_t, int64_t, float);
};

// Vectors never pass through a real call, whose convention depends on the instruction set.
// A tile of a product is kept in registers: rows, and vectors of a row.
#define STRATA_INLINE [[gnu::always_inline]] inline

#define STRATA_TILE_ROWS 3
#define STRATA_TILE_VECTORS 1
namespace baseline {
#include "strata/zoo/cpu_loops.inc"
}  // namespace baseline
#undef STRATA_TILE_ROWS
#undef STRATA_TILE_VECTORS

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define STRATA_TILE_ROWS 3
#define STRATA_TILE_VECTORS 2
namespace avx2 {
#include "strata/zoo/cpu_loops.inc"
}  // namespace avx2
#undef STRATA_TILE_ROWS
#undef STRATA_TILE_VECTORS
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#define STRATA_TILE_ROWS 6
#define STRATA_TILE_VECTORS 4
namespace avx512 {
#include "strata/zoo/cpu_loops.inc"
}  // namespace avx512
#undef STRATA_TILE_ROWS
#undef STRATA_TILE_VECTORS
#pragma GCC pop_options

const Loops& choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    return avx512::kLoops;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kLoops;
  return baseline::kLoops;
}
#else
const Loops& choose() { return baseline::kLoops; }
#endif
#undef STRATA_INLINE

const Loops& loops() {
  static const Loops& chosen = choose();
  return chosen;
}

}  // namespace

void gelu_tanh(const float* x, float* out, int64_t count) { loops().gelu(x, out, count); }

void gelu_tanh_backward(const float* grad, const float* x, float* out, int64_t count) {
  loops().gelu_backward(grad, x, out, count);
}

double cross_entropy(float* logits, int64_t count, int64_t label, bool wants_grad) {
  return loops().cross_entropy(logits, count, label, wants_grad);
}

void attention(const AttentionHead& head, int64_t length, int64_t width, float factor) {
  loops().attention(head, length, width, factor);
}

void attention_backward(const AttentionHead& head, const AttentionGrads& grads, int64_t length,
                        int64_t width, float factor) {
  loops().attention_backward(head, grads, length, width, factor);
}

}  // namespace strata::zoo::cpu
