#include "strata/zoo/head_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace strata::zoo {
namespace {

// Logits of a chunk: 4 MiB, so that they stay in the last-level cache between their passes.
constexpr int64_t kChunkElements = 1 << 20;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Sums {
  double loss = 0;
  at::Tensor rows_grad;    // (N, D), or undefined
  at::Tensor weight_grad;  // (V, D), or undefined
};

void check_labels(const at::Tensor& labels, int64_t vocab) {
  const at::Tensor bad = labels.ne(kNoLabel).logical_and(labels.lt(0).logical_or(labels.ge(vocab)));
  TORCH_CHECK(!bad.any().item<bool>(), "a label is outside of the vocabulary of ", vocab,
              ": ids run from ", labels.min().item<int64_t>(), " to ",
              labels.max().item<int64_t>());
}

// log_probabilities (R, V) becomes the gradient of the loss sum by the logits: probabilities, less
// 1 at the label.
void to_logits_grad(at::Tensor& log_probabilities, const at::Tensor& index,
                    const at::Tensor& has_label) {
  log_probabilities.exp_();
  log_probabilities.scatter_add_(1, index, at::full({}, -1.0F).expand_as(index));
  log_probabilities.mul_(has_label.unsqueeze(1));
}

Sums compute(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& labels,
             bool wants_rows_grad, bool wants_weight_grad) {
  const int64_t count = rows.size(0);
  const int64_t chunk = std::max<int64_t>(1, kChunkElements / weight.size(0));
  const at::Tensor has_label = labels.ne(kNoLabel).to(at::kFloat);
  const at::Tensor index = labels.clamp_min(0).unsqueeze(1);
  Sums sums;
  if (wants_rows_grad) sums.rows_grad = at::empty_like(rows);
  if (wants_weight_grad) sums.weight_grad = at::zeros_like(weight);
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t size = std::min(chunk, count - begin);
    const at::Tensor part = rows.narrow(0, begin, size);
    const at::Tensor part_index = index.narrow(0, begin, size);
    const at::Tensor part_has_label = has_label.narrow(0, begin, size);
    at::Tensor logits = at::log_softmax(at::mm(part, weight.t()), 1);
    const at::Tensor picked = logits.gather(1, part_index).squeeze(1) * part_has_label;
    sums.loss -= picked.sum(at::kDouble).item<double>();
    if (!wants_rows_grad && !wants_weight_grad) continue;
    to_logits_grad(logits, part_index, part_has_label);
    if (wants_rows_grad) {
      at::Tensor out = sums.rows_grad.narrow(0, begin, size);
      at::mm_out(out, logits, weight);
    }
    if (wants_weight_grad) sums.weight_grad.addmm_(logits.t(), part);
  }
  return sums;
}

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const at::Tensor& labels) {
    const Sums sums = compute(rows, weight, labels, rows.requires_grad(), weight.requires_grad());
    context->save_for_backward({sums.rows_grad, sums.weight_grad});
    return at::full({}, sums.loss, rows.options());
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& scale = output_grads[0];
    const bool is_one = scale.item<double>() == 1.0;
    const auto scaled = [&](const at::Tensor& grad) {
      return !grad.defined() || is_one ? grad : grad * scale;
    };
    return {scaled(saved[0]), scaled(saved[1]), at::Tensor()};
  }
};

}  // namespace

at::Tensor head_loss(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& labels) {
  check_labels(labels, weight.size(0));
  const bool wants_grad =
      at::GradMode::is_enabled() && (rows.requires_grad() || weight.requires_grad());
  if (wants_grad) return HeadLoss::apply(rows, weight, labels);
  return at::full({}, compute(rows, weight, labels, false, false).loss, rows.options());
}

}  // namespace strata::zoo
