#include "strata/zoo/layers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "strata/zoo/cpu_attention.h"
#include "strata/zoo/cpu_loops.h"
#include "strata/zoo/matmul.h"

namespace strata::zoo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 1 << 14;  // elements of a thread's share, at least

struct Conv1d : torch::autograd::Function<Conv1d> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const at::Tensor& bias) {
    context->save_for_backward({x, w});
    return affine(x, w, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& w = saved[1];
    const at::Tensor grad = output_grads[0].contiguous();
    variable_list grads(3);
    if (context->needs_input_grad(0)) grads[0] = product(grad, w.t());
    if (context->needs_input_grad(1)) grads[1] = product(x.t(), grad);
    if (context->needs_input_grad(2)) grads[2] = grad.sum(0);
    return grads;
  }
};

bool has_cpu_loop(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat;
}

struct GeluTanh : torch::autograd::Function<GeluTanh> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    const at::Tensor x = input.contiguous();
    context->save_for_backward({x});
    at::Tensor out = at::empty_like(x);
    const float* from = x.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      cpu::gelu_tanh(from + begin, to + begin, end - begin);
    });
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor grad = output_grads[0].contiguous();
    at::Tensor out = at::empty_like(x);
    const float* upper = grad.const_data_ptr<float>();
    const float* from = x.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      cpu::gelu_tanh_backward(upper + begin, from + begin, to + begin, end - begin);
    });
    return {out};
  }
};

bool has_16_bits(const at::Tensor& x) { return at::isReducedFloatingType(x.scalar_type()); }

struct LayerNorm16 : torch::autograd::Function<LayerNorm16> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
    const at::Tensor x = input.contiguous();
    // With weights of fp32 the kernel keeps mean and deviation in fp32.
    auto [y, mean, deviation] =
        at::native_layer_norm(x, {x.size(-1)}, weight.to(at::kFloat), bias.to(at::kFloat), epsilon);
    context->save_for_backward({x, weight, bias, mean, deviation});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const auto [x_grad, weight_grad, bias_grad] = at::native_layer_norm_backward(
        output_grads[0].contiguous().to(at::kFloat), x.to(at::kFloat), {x.size(-1)}, saved[3],
        saved[4], saved[1].to(at::kFloat), saved[2].to(at::kFloat),
        {context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)});
    const auto rounded = [&](const at::Tensor& grad) {
      return grad.defined() ? grad.to(x.scalar_type()) : grad;
    };
    return {rounded(x_grad), rounded(weight_grad), rounded(bias_grad), at::Tensor()};
  }
};

struct Embedding16 : torch::autograd::Function<Embedding16> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& ids) {
    context->save_for_backward({ids});
    context->saved_data["rows"] = weight.size(0);
    return at::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const at::Tensor ids = context->get_saved_variables()[0];
    const at::Tensor& grad = output_grads[0];
    const at::Tensor sums = at::embedding_dense_backward(
        grad.to(at::kFloat), ids, context->saved_data["rows"].toInt(), -1, false);
    return {sums.to(grad.scalar_type()), at::Tensor()};
  }
};

// Shapes and places of an attention's heads.
struct Heads {
  Heads(const at::Tensor& qkv, int64_t heads)
      : batch(qkv.size(0)), length(qkv.size(1)), count(heads), width(qkv.size(2) / 3 / heads) {}

  cpu::AttentionHead at(int64_t index, const float* qkv, float* out, float* log_sums) const {
    const int64_t row = 3 * count * width;
    const float* queries = qkv + offset(index, row);
    return {queries,
            queries + count * width,
            queries + 2 * count * width,
            row,
            out + offset(index, count * width),
            count * width,
            log_sums + index * length};
  }
  cpu::AttentionGrads grads_at(int64_t index, const float* out, float* qkv) const {
    const int64_t row = 3 * count * width;
    float* queries = qkv + offset(index, row);
    return {out + offset(index, count * width), queries, queries + count * width,
            queries + 2 * count * width, row};
  }
  // Of head `index` of all in the batch, in rows of this size.
  int64_t offset(int64_t index, int64_t row) const {
    return index / count * length * row + index % count * width;
  }

  int64_t batch, length, count, width;
};

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, int64_t heads,
                            double factor) {
    const at::Tensor qkv = input.contiguous();
    const Heads all(qkv, heads);
    at::Tensor out = at::empty({all.batch, all.length, heads * all.width}, qkv.options());
    at::Tensor log_sums = at::empty({all.batch, heads, all.length}, qkv.options());
    const float* from = qkv.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    float* sums = log_sums.mutable_data_ptr<float>();
    at::parallel_for(0, all.batch * heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        cpu::attention(all.at(i, from, to, sums), all.length, all.width,
                       static_cast<float>(factor));
      }
    });
    context->save_for_backward({qkv, out, log_sums});
    context->saved_data["heads"] = heads;
    context->saved_data["factor"] = factor;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const variable_list saved = context->get_saved_variables();
    const Heads all(saved[0], context->saved_data["heads"].toInt());
    const auto factor = static_cast<float>(context->saved_data["factor"].toDouble());
    const at::Tensor grad = output_grads[0].contiguous();
    at::Tensor qkv_grad = at::empty_like(saved[0]);
    const float* upper = grad.const_data_ptr<float>();
    float* to = qkv_grad.mutable_data_ptr<float>();
    // Forward's results are only read here.
    const float* from = saved[0].const_data_ptr<float>();
    auto* out = const_cast<float*>(saved[1].const_data_ptr<float>());
    auto* sums = const_cast<float*>(saved[2].const_data_ptr<float>());
    at::parallel_for(0, all.batch * all.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        cpu::attention_backward(all.at(i, from, out, sums), all.grads_at(i, upper, to), all.length,
                                all.width, factor);
      }
    });
    return {qkv_grad, at::Tensor(), at::Tensor()};
  }
};

at::Tensor attention_of_libtorch(const at::Tensor& qkv, int64_t heads, double factor) {
  const int64_t width = qkv.size(2) / 3 / heads;
  const at::Tensor parts =
      qkv.view({qkv.size(0), qkv.size(1), 3, heads, width}).permute({2, 0, 3, 1, 4});
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true, factor)
      .transpose(1, 2)
      .reshape({qkv.size(0), qkv.size(1), heads * width});
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, double factor) {
  const bool is_ours =
      has_cpu_loop(qkv) && cpu::has_attention(qkv.size(2) / 3 / heads) && qkv.numel() > 0;
  return is_ours ? CausalAttention::apply(qkv, heads, factor)
                 : attention_of_libtorch(qkv, heads, factor);
}

at::Tensor conv1d(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  const at::Tensor rows = x.reshape({-1, shape.back()});
  shape.back() = w.size(1);
  return Conv1d::apply(rows, w, bias).view(shape);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon) {
  return has_16_bits(x) ? LayerNorm16::apply(x, weight, bias, epsilon)
                        : at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

at::Tensor look_up(const at::Tensor& weight, const at::Tensor& ids) {
  return has_16_bits(weight) ? Embedding16::apply(weight, ids) : at::embedding(weight, ids);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return has_cpu_loop(x) ? GeluTanh::apply(x) : at::gelu(x, "tanh");
}

}  // namespace strata::zoo
