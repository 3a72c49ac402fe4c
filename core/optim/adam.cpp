// AdamW (Loshchilov and Hutter 2019) and Adam with L2 decay (Kingma and Ba 2015): LibTorch's fused
// kernels on slices that this rank owns.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "strata/optim/registry.h"
#include "strata/optim/slices.h"

namespace strata::optim {
namespace {

constexpr const char* kKinds[] = {"exp_avg", "exp_avg_sq"};
constexpr int64_t kCopied = int64_t{1} << 18;  // elements of a gradient at a time: 1 MiB

class Adam final : public SlicedOptimizer {
 public:
  explicit Adam(const OptimizerOptions& options)
      : SlicedOptimizer(options.name),
        options_(options),
        update_(options.name == "adamw" ? static_cast<Update>(at::_fused_adamw_)
                                        : static_cast<Update>(at::_fused_adam_)),
        steps_(at::zeros({}, at::kFloat)),
        scale_(at::zeros({}, at::kFloat)) {}

  Status lay_out(const OptimizerInput& input) {
    STRATA_RETURN_IF_ERROR(SlicedOptimizer::lay_out(input, kKinds, Joining::kNeighboursOfOneGroup));
    lists_.resize(groups_.size());
    for (const Slice& slice : slices_) {
      if (slice.gradient.in_place() == nullptr) continue;
      // The kernel takes gradients that it could write to; it leaves them multiplied by the factor.
      add(lists_[static_cast<size_t>(slice.group)], arrays_at(slice, 0, slice.numel),
          const_cast<float*>(slice.gradient.in_place()));
    }
    return {};
  }

 protected:
  Status update(double learning_rate, const GradientScale& scale, Reducer&) override {
    steps_.fill_(static_cast<double>(step_count()));
    scale_.fill_(1.0 / ScaledGradient::factor(scale));  // the kernel divides by it
    try {
      if (scale.max_value == 0) {
        for (size_t i = 0; i < groups_.size(); ++i) update(lists_[i], groups_[i], learning_rate);
      }
      for (const Slice& slice : slices_) {
        if (scale.max_value == 0 && slice.gradient.in_place() != nullptr) continue;
        update_from_copy(slice, scale, learning_rate);
      }
    } catch (const c10::Error& error) {
      return internal_error(fmt::format("{}: {}", name(), error.what_without_backtrace()));
    }
    return {};
  }

 private:
  using Update = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                          at::TensorList, at::TensorList, double, double, double, double, double,
                          bool, bool, const std::optional<at::Tensor>&,
                          const std::optional<at::Tensor>&);
  // Slices of one group, as tensors over their memory.
  struct Lists {
    std::vector<at::Tensor> masters, gradients, exp_avgs, exp_avg_sqs, steps;
  };

  void add(Lists& lists, const kernels::Arrays& arrays, float* gradient) const {
    const auto view = [&](float* data) { return at::from_blob(data, {arrays.numel}, at::kFloat); };
    lists.masters.push_back(view(arrays.weights));
    lists.gradients.push_back(view(gradient));
    lists.exp_avgs.push_back(view(arrays.first));
    lists.exp_avg_sqs.push_back(view(arrays.second));
    lists.steps.push_back(steps_);
  }

  void update(Lists& lists, const ParameterGroup& group, double learning_rate) const {
    if (lists.masters.empty()) return;
    update_(lists.masters, lists.gradients, lists.exp_avgs, lists.exp_avg_sqs, {}, lists.steps,
            learning_rate * group.lr_multiplier, options_.beta1, options_.beta2, group.weight_decay,
            options_.epsilon, false, false, scale_, {});
  }

  // What the kernel cannot read in place: 16-bit gradients and those that are cut.
  void update_from_copy(const Slice& slice, const GradientScale& scale, double learning_rate) {
    const ScaledGradient gradient(slice.gradient, scale);
    copy_.resize(static_cast<size_t>(std::min(slice.numel, kCopied)));
    for (int64_t begin = 0; begin < slice.numel; begin += kCopied) {
      const int64_t count = std::min(kCopied, slice.numel - begin);
      parallel_blocks(count, [&](int64_t first, int64_t last) {
        for_each_chunk(first, last, [&](int64_t at, int64_t numel) {
          gradient.copy(begin + at, numel, copy_.data() + at);
        });
      });
      Lists lists;
      add(lists, arrays_at(slice, begin, count), copy_.data());
      update(lists, groups_[static_cast<size_t>(slice.group)], learning_rate);
    }
  }

  OptimizerOptions options_;
  Update update_;
  std::vector<Lists> lists_;  // by group: slices that the kernel reads in place
  std::vector<float> copy_;
  at::Tensor steps_;  // one fp32 scalar, shared by all slices
  at::Tensor scale_;
};

}  // namespace

MadeOptimizer make_adam(const OptimizerOptions& options, const OptimizerInput& input) {
  auto adam = std::make_unique<Adam>(options);
  STRATA_RETURN_IF_ERROR(adam->lay_out(input));
  return std::unique_ptr<Optimizer>(std::move(adam));
}

}  // namespace strata::optim
