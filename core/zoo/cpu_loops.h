// Loops of the zoo over fp32 numbers in CPU memory, in vector code for the processor at hand.
#ifndef STRATA_ZOO_CPU_LOOPS_H_
#define STRATA_ZOO_CPU_LOOPS_H_

#include <cstdint>

namespace strata::zoo::cpu {

// out[i] = gelu(x[i]) in the approximation by tanh (Hendrycks and Gimpel 2016), to 3e-7
// relative, and 4e-6 left of 0.
void gelu_tanh(const float* x, float* out, int64_t count);

// out[i] = grad[i] * gelu'(x[i]). `out` may be `grad`.
void gelu_tanh_backward(const float* grad, const float* x, float* out, int64_t count);

// Returns -log softmax(logits)[label]. With `wants_grad` the logits become its gradient by them:
// softmax, less 1 at the label.
double cross_entropy(float* logits, int64_t count, int64_t label, bool wants_grad);

}  // namespace strata::zoo::cpu

#endif  // STRATA_ZOO_CPU_LOOPS_H_
