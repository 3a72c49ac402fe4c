#include "strata/hooks/gradient_sink.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <memory>

#include "strata/base/status.h"

namespace strata::hooks {

class GradientSink::LeafHook final : public torch::autograd::FunctionPreHook {
 public:
  LeafHook(GradientSink& sink, size_t parameter) : sink_(sink), parameter_(parameter) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    if (gradients[0].defined()) sink_.take(parameter_, gradients[0]);
    return {at::Tensor()};
  }

 private:
  GradientSink& sink_;
  size_t parameter_;
};

GradientSink::GradientSink(const model::UnitStorage& unit) : unit_(unit) {
  for (size_t i = 0; i < unit_.parameters().size(); ++i) {
    if (!unit_.spec().parameters[i].is_trainable) continue;
    torch::autograd::impl::add_hook(unit_.parameter(i), std::make_unique<LeafHook>(*this, i));
  }
}

GradientSink::~GradientSink() {
  for (const at::Tensor& parameter : unit_.parameters()) {
    if (parameter.requires_grad()) torch::autograd::impl::clear_hooks(parameter);
  }
}

void GradientSink::open(const GradientTarget& target, bool gathers_entries) {
  if (target.data == nullptr && unit_.layout().numel > 0) {
    throw StatusError(internal_error(
        fmt::format("hooks: no memory was given for the gradients of unit '{}' ({} elements). "
                    "HINT: UnitEvents::gradient_target returned null",
                    unit_.spec().name, unit_.layout().numel)));
  }
  target_ = target;
  is_open_ = true;
  gathers_entries_ = gathers_entries;
  gathered_.assign(unit_.parameters().size(), at::Tensor());
  has_gradient_.assign(unit_.parameters().size(), false);
}

void GradientSink::abandon() {
  is_open_ = false;
  gathered_.clear();
}

std::span<const int> GradientSink::close() {
  is_open_ = false;
  for (size_t i = 0; i < gathered_.size(); ++i) {
    if (gathered_[i].defined()) write(i, gathered_[i]);
  }
  gathered_.clear();
  missing_.clear();
  const bool writes = !target_.is_accumulating;
  for (size_t i = 0; i < has_gradient_.size(); ++i) {
    const model::ParameterSpec& parameter = unit_.spec().parameters[i];
    if (has_gradient_[i]) continue;
    if (parameter.is_trainable) missing_.push_back(static_cast<int>(i));
    const int64_t first = unit_.layout().offsets[i];
    if (writes) write_zeros(first, first + parameter.numel());
  }
  if (writes) {
    for (const model::FlatLayout::Gap& gap : unit_.layout().gaps) write_zeros(gap.first, gap.last);
  }
  return missing_;
}

void GradientSink::check(size_t parameter, const at::Tensor& gradient) const {
  const std::string& name = unit_.spec().parameters[parameter].name;
  if (c10::GradMode::is_enabled()) {
    throw StatusError(unsupported(fmt::format(
        "hooks: the gradient of '{}' was asked for with create_graph (a second derivative), but "
        "gradients go into memory that autograd does not follow. HINT: no create_graph through a "
        "model that a strategy trains",
        name)));
  }
  if (gradient.layout() != at::kStrided) {
    throw StatusError(unsupported(
        fmt::format("hooks: the gradient of '{}' is sparse, and reductions are dense. HINT: use "
                    "embeddings with sparse = false",
                    name)));
  }
  if (!is_open_) {
    throw StatusError(wrong_state(fmt::format(
        "hooks: the gradient of '{}' came outside of the turn of unit '{}' in "
        "UnitGraph::backward. HINT: run backward by UnitGraph::backward only, and let nothing but "
        "an entry's output leave its body",
        name, unit_.spec().name)));
  }
}

void GradientSink::take(size_t parameter, const at::Tensor& gradient) {
  check(parameter, gradient);
  if (!gathers_entries_) {
    write(parameter, gradient);
    return;
  }
  at::Tensor& sum = gathered_[parameter];
  sum = sum.defined() ? sum + gradient : gradient;
}

void GradientSink::write(size_t parameter, const at::Tensor& gradient) {
  const at::Tensor to = view(unit_.layout().offsets[parameter], gradient.sizes());
  if (target_.is_accumulating || has_gradient_[parameter]) {
    to.add_(gradient);
  } else {
    to.copy_(gradient);
  }
  has_gradient_[parameter] = true;
}

at::Tensor GradientSink::view(int64_t first, at::IntArrayRef sizes) const {
  const auto size = static_cast<int64_t>(c10::elementSize(target_.dtype));
  const at::TensorOptions options = at::TensorOptions(target_.dtype).device(unit_.device());
  return at::from_blob(static_cast<char*>(target_.data) + first * size, sizes, options);
}

void GradientSink::write_zeros(int64_t first, int64_t last) const {
  if (first == last) return;
  if (unit_.device().is_cpu()) {
    const size_t size = c10::elementSize(target_.dtype);
    std::memset(static_cast<char*>(target_.data) + static_cast<size_t>(first) * size, 0,
                static_cast<size_t>(last - first) * size);
  } else {
    view(first, {last - first}).zero_();
  }
}

}  // namespace strata::hooks
