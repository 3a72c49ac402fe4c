// The language model's head and its cross-entropy in one: logits are never whole in memory.
#ifndef STRATA_ZOO_HEAD_LOSS_H_
#define STRATA_ZOO_HEAD_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::zoo {

inline constexpr int64_t kNoLabel = -100;

// The SUM over rows with a label of -log softmax(rows weight^T)[label]: an fp32 scalar, added up in
// double.
//
// rows (N, D), weight (V, D), labels (N) int64, kNoLabel or in [0, V). Works through chunks of rows
// that fit the cache, and computes the gradients in forward while a chunk's probabilities are
// there: backward reads neither logits nor weight. Throws c10::Error for a label outside of the
// vocabulary.
//
// With rows of 16 bits logits and gradients have 16 bits, softmax and loss are fp32, and chunks'
// gradients by the weight are added in fp32. `grad_scale`: what backward will begin with; 16-bit
// gradients are multiplied by it before they are rounded.
at::Tensor head_loss(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& labels,
                     double grad_scale = 1);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_HEAD_LOSS_H_
