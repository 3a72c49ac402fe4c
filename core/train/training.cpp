#include "strata/train/training.h"

#include <c10/core/AutogradState.h>

#include <utility>

#include "strata/train/optimization.h"

namespace strata::train {

plugin::StrategyNeeds training_needs(const config::BatchConfig& batch, const World& world,
                                     const model::ModelSpec& spec, const Precision& precision) {
  plugin::StrategyNeeds needs;
  needs.world_size = static_cast<uint32_t>(world.size);
  needs.accumulates = batch.gradient_accumulation_steps > 1;
  needs.has_tied_units = spec.order.size() > spec.units.size();
  needs.recomputes = batch.activation_checkpointing;
  needs.needs_equal_replicas = true;
  needs.compute_dtype = precision.units.compute;
  needs.reduce_dtype = precision.units.reduce;
  needs.accumulate_dtype = precision.units.accumulate;
  return needs;
}

Status attach_training(const config::PlacementConfig& placement, const config::BatchConfig& batch,
                       const config::OptimizerConfig& optimizer, const Precision& precision,
                       const Rank& rank, const plugin::ResolvedStrategy& strategy,
                       zoo::Model& model, Training& out) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  STRATA_ASSIGN_OR_RETURN(out.host, make_host(rank, placement));
  out.activations = std::make_unique<ActivationMemory>(*out.host);
  STRATA_ASSIGN_OR_RETURN(
      plugin::StrategyInstance instance,
      plugin::StrategyInstance::create(strategy, rank.world, {STRATA_DEVICE_CPU, 0},
                                       out.host->abi(), placement.check_plugin));
  STRATA_ASSIGN_OR_RETURN(out.session,
                          strategy::Session::attach(std::move(instance), *out.host,
                                                    with_dtypes(model.spec(), precision.units)));
  model.bind_units(out.session->units());
  model.set_buffer_dtype(precision.buffers);
  if (precision.dynamic_loss_scale) out.loss_scale.emplace(*precision.dynamic_loss_scale);
  if (batch.activation_checkpointing) out.session->set_recompute(hooks::UnitGraph::every(1));
  STRATA_RETURN_IF_ERROR(check_partitions(optimizer, strategy.name, *out.session));
  STRATA_ASSIGN_OR_RETURN(out.optimizer, make_optimizer(optimizer, *out.session, *out.host));
  return {};
}

RankSummary rank_summary(const device::Host& host, uint64_t sent_bytes_per_step) {
  const device::MemoryStats memory = host.memory_stats();
  RankSummary mine;
  mine.param_bytes = memory.used_of(STRATA_TAG_PARAMETERS);
  mine.grad_bytes = memory.used_of(STRATA_TAG_GRADIENTS);
  mine.optimizer_bytes = memory.used_of(STRATA_TAG_OPTIMIZER);
  mine.gathered_peak_bytes = memory.device.peak[STRATA_TAG_GATHERED];
  mine.peak_bytes = memory.peak_total;
  mine.sent_bytes_per_step = sent_bytes_per_step;
  return mine;
}

std::string strategy_text(const plugin::ResolvedStrategy& strategy) {
  const std::string options = plugin::to_text(strategy.options);
  return options.empty() ? strategy.name : strategy.name + ":" + options;
}

}  // namespace strata::train
