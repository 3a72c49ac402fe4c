#include "strata/zoo/layers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

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

}  // namespace

at::Tensor conv1d(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  const at::Tensor rows = x.reshape({-1, shape.back()});
  shape.back() = w.size(1);
  return Conv1d::apply(rows, w, bias).view(shape);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return has_cpu_loop(x) ? GeluTanh::apply(x) : at::gelu(x, "tanh");
}

}  // namespace strata::zoo
