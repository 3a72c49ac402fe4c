#include "strata/train/optimization.h"

#include <algorithm>
#include <cmath>

#include "strata/config/optimizer_flags.h"
#include "strata/optim/registry.h"

namespace strata::train {
namespace {

constexpr size_t kMostAtOnce = 4096;  // of all_reduce_small

template <typename Value>
Status reduce(strategy::Session& session, std::span<Value> values, int32_t op) {
  for (size_t begin = 0; begin < values.size(); begin += kMostAtOnce) {
    const size_t count = std::min(kMostAtOnce, values.size() - begin);
    STRATA_RETURN_IF_ERROR(session.all_reduce(values.subspan(begin, count), op));
  }
  return {};
}

optim::OptimizerOptions options_of(const config::OptimizerConfig& config) {
  optim::OptimizerOptions options;
  options.name = config.optim;
  options.beta1 = config.adam_beta1;
  options.beta2 = config.adam_beta2;
  options.epsilon = config.adam_epsilon;
  options.momentum = config.momentum;
  options.nesterov = config.nesterov;
  options.scale_parameter = config.adafactor_scale_parameter;
  options.clip_threshold = config.adafactor_clip_threshold;
  options.decay_rate = config.adafactor_decay_rate;
  return options;
}

std::vector<model::FlatLayout> layouts_of(const strategy::Session& session) {
  std::vector<model::FlatLayout> layouts;
  for (const model::UnitStorage* unit : session.units()) layouts.push_back(unit->layout());
  return layouts;
}

}  // namespace

Status SessionReducer::sum(std::span<int64_t> values) {
  return reduce(session_, values, STRATA_REDUCE_SUM);
}

Status SessionReducer::max(std::span<double> values) {
  return reduce(session_, values, STRATA_REDUCE_MAX);
}

Result<optim::ParameterGroups> make_groups(const config::OptimizerConfig& config,
                                           const model::ModelSpec& spec) {
  std::vector<optim::GroupRule> rules;
  for (const std::string& text : config.param_group) {
    STRATA_ASSIGN_OR_RETURN(const config::ParamGroup group, config::parse_param_group(text));
    rules.push_back({group.pattern, group.lr_multiplier, group.weight_decay});
  }
  return optim::assign_groups(spec, rules, config.weight_decay);
}

Status check_partitions(const config::OptimizerConfig& config, const std::string& strategy,
                        strategy::Session& session) {
  STRATA_ASSIGN_OR_RETURN(const optim::ParameterGroups groups, make_groups(config, session.spec()));
  SessionReducer reducer(session);
  return optim::check_partitions(
      options_of(config), strategy,
      {session.spec(), layouts_of(session), session.partitions(), groups, nullptr}, reducer);
}

Result<std::unique_ptr<optim::Optimizer>> make_optimizer(const config::OptimizerConfig& config,
                                                         const strategy::Session& session,
                                                         device::Host& host) {
  STRATA_ASSIGN_OR_RETURN(const optim::ParameterGroups groups, make_groups(config, session.spec()));
  const auto allocate = [&host](int64_t numel) -> Result<optim::StateMemory> {
    device::MemoryRequest request;
    request.tag = STRATA_TAG_OPTIMIZER;
    request.flags = STRATA_MEMORY_ZEROED;
    request.bytes = static_cast<uint64_t>(numel) * sizeof(float);
    request.label = "optimizer states";
    STRATA_ASSIGN_OR_RETURN(void* memory, host.allocate(request));
    return optim::StateMemory(static_cast<float*>(memory), [&host](float* states) {
      const Status freed = host.free(states);
      STRATA_CHECK(freed.ok()) << freed.message();
    });
  };
  return optim::make_optimizer(options_of(config), {session.spec(), layouts_of(session),
                                                    session.partitions(), groups, allocate});
}

optim::Schedule make_schedule(const config::OptimizerConfig& config, int64_t total_steps) {
  const auto part_of_all = [&](double ratio) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * ratio));
  };
  optim::Schedule schedule;
  schedule.kind = config.lr_scheduler_type;
  if (schedule.kind == "constant_with_warmup") schedule.kind = "constant";
  if (config.adafactor_relative_step) schedule.kind = "adafactor";
  schedule.learning_rate = config.learning_rate;
  schedule.warmup_steps =
      config.warmup_ratio > 0 ? part_of_all(config.warmup_ratio) : config.warmup_steps;
  schedule.total_steps = total_steps;
  schedule.end = config.lr_end;
  schedule.power = config.lr_power;
  schedule.gamma = config.lr_gamma.value_or(1);
  schedule.timescale = config.lr_timescale.value_or(0);
  schedule.decay_steps = config.lr_decay_steps.value_or(part_of_all(0.1));
  schedule.decay_type = config.lr_decay_type;
  schedule.min_ratio = config.min_lr_ratio;
  schedule.warmup_type = config.warmup_type;
  schedule.warmup_min = config.warmup_min_lr;
  schedule.warmup_init = config.adafactor_warmup_init;
  return schedule;
}

optim::Clipping make_clipping(const config::OptimizerConfig& config) {
  const Result<double> type = config::parse_norm_type(config.grad_norm_type);
  STRATA_CHECK(type.ok()) << config.grad_norm_type;
  optim::Clipping clipping;
  clipping.norm_type = *type;
  clipping.max_value = config.clip_grad_value.value_or(0);
  clipping.max_norm = clipping.max_value > 0 ? 0 : config.max_grad_norm;
  return clipping;
}

}  // namespace strata::train
