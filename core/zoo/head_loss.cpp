#include "strata/zoo/head_loss.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "strata/zoo/cpu_loops.h"
#include "strata/zoo/matmul.h"

namespace strata::zoo {
namespace {

// Logits of a chunk, 16 MiB: few enough for the cache to help, many enough for fast products.
constexpr int64_t kChunkElements = 1 << 22;
constexpr int64_t kChunkRows = 128;  // at least

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

// The loss sum of logits (R, V), which become its gradient by them (with `wants_grad`): softmax,
// less 1 at the label; zeros where there is none.
double cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool wants_grad) {
  const int64_t rows = logits.size(0);
  const int64_t vocab = logits.size(1);
  auto* values = logits.mutable_data_ptr<float>();
  const auto* label = labels.const_data_ptr<int64_t>();
  std::vector<double> losses(static_cast<size_t>(rows), 0.0);
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* of_row = values + row * vocab;
      if (label[row] != kNoLabel) {
        losses[static_cast<size_t>(row)] =
            cpu::cross_entropy(of_row, vocab, label[row], wants_grad);
      } else if (wants_grad) {
        std::fill(of_row, of_row + vocab, 0.0F);
      }
    }
  });
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

// The same for other devices and dtypes; the gradient is multiplied by `grad_scale` in fp32.
double cross_entropy_of_libtorch(const at::Tensor& logits, const at::Tensor& labels,
                                 bool wants_grad, double grad_scale) {
  const at::Tensor has_label = labels.ne(kNoLabel).to(at::kFloat);
  const at::Tensor index = labels.clamp_min(0).unsqueeze(1);
  at::Tensor log_probabilities = at::log_softmax(logits, 1, at::kFloat);
  const at::Tensor picked = log_probabilities.gather(1, index).squeeze(1) * has_label;
  if (wants_grad) {
    log_probabilities.exp_();
    log_probabilities.scatter_add_(
        1, index, at::full({}, -1.0F, log_probabilities.options()).expand_as(index));
    logits.copy_(log_probabilities.mul_((has_label * grad_scale).unsqueeze(1)));
  }
  return -picked.sum(at::kDouble).item<double>();
}

// The gradient by the weight, chunk by chunk: 16-bit chunks are added up in fp32.
class WeightGrad {
 public:
  WeightGrad(const at::Tensor& weight, bool has_several_chunks)
      : weight_(weight),
        adds_in_fp32_(has_several_chunks && at::isReducedFloatingType(weight.scalar_type())) {}

  void add(const at::Tensor& a, const at::Tensor& b) {
    if (adds_in_fp32_) {
      const at::Tensor part = product(a, b);
      sum_ = sum_.defined() ? sum_.add_(part) : part.to(at::kFloat);
    } else {
      const bool is_first = !sum_.defined();
      if (is_first) sum_ = at::empty_like(weight_);
      multiply_into(sum_, a, b, !is_first);
    }
  }
  at::Tensor take() const {
    return sum_.defined() ? sum_.to(weight_.scalar_type()) : at::zeros_like(weight_);
  }

 private:
  const at::Tensor& weight_;
  bool adds_in_fp32_;
  at::Tensor sum_;
};

struct Wanted {
  bool rows_grad = false;
  bool weight_grad = false;
  double grad_scale = 1;
};

Sums compute(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& labels,
             const Wanted& wanted) {
  const int64_t count = rows.size(0);
  const int64_t vocab = weight.size(0);
  const int64_t chunk = std::min(std::max(kChunkRows, kChunkElements / vocab), count);
  const bool is_plain = rows.device().is_cpu() && rows.scalar_type() == at::kFloat;
  const bool wants_grad = wanted.rows_grad || wanted.weight_grad;
  Sums sums;
  if (wanted.rows_grad) sums.rows_grad = at::empty_like(rows);
  WeightGrad weight_grad(weight, count > chunk);
  const at::Tensor memory = at::empty({chunk, vocab}, rows.options());
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t size = std::min(chunk, count - begin);
    const at::Tensor part = rows.narrow(0, begin, size);
    const at::Tensor part_labels = labels.narrow(0, begin, size);
    const at::Tensor logits = memory.narrow(0, 0, size);
    multiply_into(logits, part, weight.t(), false);
    sums.loss +=
        is_plain ? cross_entropy(logits, part_labels, wants_grad)
                 : cross_entropy_of_libtorch(logits, part_labels, wants_grad, wanted.grad_scale);
    if (wanted.rows_grad) {
      multiply_into(sums.rows_grad.narrow(0, begin, size), logits, weight, false);
    }
    if (wanted.weight_grad) weight_grad.add(logits.t(), part);
  }
  if (wanted.weight_grad) sums.weight_grad = weight_grad.take();
  return sums;
}

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const at::Tensor& labels, bool has_backward,
                            double grad_scale) {
    Wanted wanted;
    wanted.rows_grad = has_backward && rows.requires_grad();
    wanted.weight_grad = has_backward && weight.requires_grad();
    // fp32 has room for every scale: there backward multiplies.
    if (at::isReducedFloatingType(rows.scalar_type())) wanted.grad_scale = grad_scale;
    const Sums sums = compute(rows, weight, labels, wanted);
    context->save_for_backward({sums.rows_grad, sums.weight_grad});
    context->saved_data["grad_scale"] = wanted.grad_scale;
    return at::full({}, sums.loss, rows.options().dtype(at::kFloat));
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const variable_list saved = context->get_saved_variables();
    const double factor =
        output_grads[0].item<double>() / context->saved_data["grad_scale"].toDouble();
    const auto scaled = [&](const at::Tensor& grad) {
      if (!grad.defined() || factor == 1.0) return grad;
      // In fp32: a factor may be larger than any fp16 number.
      return (grad.to(at::kFloat) * factor).to(grad.scalar_type());
    };
    return {scaled(saved[0]), scaled(saved[1]), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor head_loss(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& labels,
                     double grad_scale) {
  check_labels(labels, weight.size(0));
  // Inside of apply() gradients are off.
  return HeadLoss::apply(rows.contiguous(), weight, labels.contiguous(), at::GradMode::is_enabled(),
                         grad_scale);
}

}  // namespace strata::zoo
