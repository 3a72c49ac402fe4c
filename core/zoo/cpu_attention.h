// Causal self-attention in fp32 on CPU.
#ifndef STRATA_ZOO_CPU_ATTENTION_H_
#define STRATA_ZOO_CPU_ATTENTION_H_

#include <cstdint>

namespace strata::zoo::cpu {

// Where one head's numbers lie: row t begins at t * row.
struct AttentionHead {
  const float* queries;  // (T, width)
  const float* keys;
  const float* values;
  int64_t row;
  float* out;  // (T, width); forward writes it, backward reads it
  int64_t out_row;
  float* log_sums;  // (T): log of the sum of a query's exponentials; likewise
};

struct AttentionGrads {
  const float* out;  // rows as those of AttentionHead::out
  float* queries;    // all three are overwritten
  float* keys;
  float* values;
  int64_t row;
};

// Whether heads of this width have a loop: multiples of 16.
constexpr bool has_attention(int64_t width) { return width % 16 == 0; }

// out = softmax(factor * queries keys^T, each query seeing itself and what is before it) values.
// One head, on the calling thread. Memory besides: (width + 48) T floats, twice that in backward.
void attention(const AttentionHead& head, int64_t length, int64_t width, float factor);
void attention_backward(const AttentionHead& head, const AttentionGrads& grads, int64_t length,
                        int64_t width, float factor);

}  // namespace strata::zoo::cpu

#endif  // STRATA_ZOO_CPU_ATTENTION_H_
