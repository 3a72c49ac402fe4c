// Layers whose forward and backward are our own: the same values as LibTorch's operators, faster.
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

}  // namespace strata::zoo

#endif  // STRATA_ZOO_LAYERS_H_
