#include "strata/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "strata/base/check.h"

namespace strata::optim {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int32_t kF32 = 1;  // STRATA_DTYPE_F32

int64_t round_up(int64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

at::Tensor view(float* data, int64_t numel) { return at::from_blob(data, {numel}, at::kFloat); }

}  // namespace

Result<std::unique_ptr<AdamW>> AdamW::create(const AdamWOptions& options,
                                             const model::ModelSpec& spec,
                                             const std::vector<model::FlatLayout>& layouts,
                                             const std::vector<model::Partition>& partitions,
                                             const Allocate& allocate) {
  std::unique_ptr<AdamW> adamw(new AdamW(options));
  adamw->groups_[1].weight_decay = options.weight_decay;
  adamw->steps_ = at::zeros({}, at::kFloat);
  adamw->scale_ = at::zeros({}, at::kFloat);
  for (const model::Partition& partition : partitions) {
    adamw->states_.emplace_back();
    if (!partition.is_trainable || partition.gradient == nullptr || partition.numel == 0) continue;
    if (partition.gradient_dtype != kF32) {
      return unsupported(
          fmt::format("adamw: gradients of dtype {}, only fp32 is supported. HINT: "
                      "a reduce dtype of fp32",
                      partition.gradient_dtype));
    }
    std::vector<StateTensor>& state = adamw->states_.back();
    for (const char* name : {"exp_avg", "exp_avg_sq"}) {
      STRATA_ASSIGN_OR_RETURN(Memory memory, allocate(partition.numel));
      state.push_back({name, memory.get()});
      adamw->memory_.push_back(std::move(memory));
    }
    const auto unit = static_cast<size_t>(partition.unit);
    adamw->add_segments(spec.units[unit], layouts[unit], partition, state);
  }
  return adamw;
}

void AdamW::add_segments(const model::UnitSpec& unit, const model::FlatLayout& layout,
                         const model::Partition& partition, const std::vector<StateTensor>& state) {
  const int64_t first = partition.offset;
  const int64_t last = partition.offset + partition.numel;
  // Neighbours of one group are updated together.
  int64_t begin = first;
  int64_t end = first;
  bool decays = false;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const model::ParameterSpec& parameter = unit.parameters[i];
    const int64_t from = std::max(layout.offsets[i], first);
    const int64_t to = std::min(round_up(layout.offsets[i] + parameter.numel()), last);
    if (from >= to || !parameter.is_trainable) continue;
    const bool parameter_decays = parameter.shape.size() >= 2;
    if (from != end || parameter_decays != decays) {
      add_segment(partition, state, begin, end, decays);
      begin = from;
    }
    end = to;
    decays = parameter_decays;
  }
  add_segment(partition, state, begin, end, decays);
}

void AdamW::add_segment(const model::Partition& partition, const std::vector<StateTensor>& state,
                        int64_t begin, int64_t end, bool decays) {
  if (begin >= end) return;
  const int64_t at = begin - partition.offset;
  STRATA_CHECK(at % kAlignment == 0 && (end - begin) % kAlignment == 0) << begin << " " << end;
  Group& group = groups_[decays ? 1 : 0];
  group.masters.push_back(view(partition.master + at, end - begin));
  group.gradients.push_back(view(static_cast<float*>(partition.gradient) + at, end - begin));
  group.exp_avgs.push_back(view(state[0].data + at, end - begin));
  group.exp_avg_sqs.push_back(view(state[1].data + at, end - begin));
  group.steps.push_back(steps_);
}

Status AdamW::step(double learning_rate, double factor) {
  STRATA_CHECK(std::isfinite(factor) && factor > 0) << "factor " << factor;
  ++step_count_;
  steps_.fill_(static_cast<double>(step_count_));
  scale_.fill_(1.0 / factor);  // the kernel divides by it
  try {
    for (Group& group : groups_) {
      if (group.masters.empty()) continue;
      at::_fused_adamw_(group.masters, group.gradients, group.exp_avgs, group.exp_avg_sqs, {},
                        group.steps, learning_rate, options_.beta1, options_.beta2,
                        group.weight_decay, options_.epsilon, false, false, scale_);
    }
  } catch (const c10::Error& error) {
    return internal_error(fmt::format("adamw: {}", error.what_without_backtrace()));
  }
  return {};
}

}  // namespace strata::optim
