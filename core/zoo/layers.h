// Layers whose forward and backward are our own: the same values as LibTorch's operators, faster in
// fp32, and more exact in 16 bits.
//
// Note [Sums over rows in 16 bits]
// LibTorch's CPU kernels add the gradients of a layer norm's weights, and of an embedding's rows,
// in the dtype of the gradient: over 4096 rows of bf16 they are up to 170 units in the last place
// off. Here such sums run in fp32 and are rounded once, as matrix products are.
#ifndef STRATA_ZOO_LAYERS_H_
#define STRATA_ZOO_LAYERS_H_

#include <ATen/core/Tensor.h>

namespace strata::zoo {

// GPT-2's Conv1D: x (..., in) w (in, out) + bias (out). See Note [oneDNN for fp32].
at::Tensor conv1d(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);

// Causal self-attention without mask and dropout: qkv (B, T, 3 * heads * width), queries first, to
// (B, T, heads * width). `factor` multiplies the scores.
at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, double factor);

// gelu in the approximation by tanh.
at::Tensor gelu_tanh(const at::Tensor& x);

// Layer norm over the last dimension; statistics in fp32 whatever the dtype. See Note [Sums over
// rows in 16 bits].
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon);

// Rows of `weight` (V, D) by ids. See Note [Sums over rows in 16 bits].
at::Tensor look_up(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_LAYERS_H_
