#include "strata/sdk/sharding_plan.h"

#include <algorithm>

namespace strata::sdk {
namespace {

constexpr uint32_t kGradientSlots = 2;  // one is written while the other is reduced

const char* word(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string FullShardingOptions::text() const {
  return std::string("option reshard_after_forward ") + word(reshard_after_forward) +
         "\noption backward_prefetch " + std::to_string(static_cast<int>(backward_prefetch)) +
         "\noption forward_prefetch " + word(forward_prefetch) + "\noption limit_all_gathers " +
         std::to_string(limit_all_gathers) + "\noption sync_each_batch " + word(sync_each_batch) +
         "\noption overlap_comm " + word(overlap_comm) + "\noption shard_group_size " +
         std::to_string(shard_group_size) + "\noption deterministic " + word(sums_in_rank_order) +
         "\n";
}

MeshShape FullShardingOptions::shape(uint32_t world) const {
  return {world, shard_group_size == 0 ? world : shard_group_size, sums_in_rank_order};
}

SlotPlan::SlotPlan(const ModelTable& model, const FullShardingOptions& options) {
  for (uint32_t u = 0; u < model.count(); ++u) {
    const UnitInfo& unit = model.unit(u);
    const bool is_root = model.is_root(u);
    const bool keeps_parameters = is_root || !options.reshard_after_forward;
    has_own_parameter_slot.push_back(keeps_parameters && unit.numel > 0);
    has_own_gradient_slot.push_back(is_root && unit.is_trainable);
    if (unit.numel > 0 && !keeps_parameters) {
      ++shared_parameter_slots;
      shared_parameter_bytes = std::max(shared_parameter_bytes, unit.bytes());
    }
    if (unit.is_trainable && !is_root) {
      ++shared_gradient_slots;
      shared_gradient_bytes = std::max(shared_gradient_bytes, unit.bytes());
    }
  }
  shared_parameter_slots = std::min(shared_parameter_slots, options.limit_all_gathers);
  shared_gradient_slots = std::min(shared_gradient_slots, kGradientSlots);
}

strata_estimate_t estimate_full_sharding(const strata_create_args_t& args,
                                         const FullShardingOptions& options,
                                         const strata_model_t& model) {
  const ModelTable table = ModelTable::padded(model, args.world->size);
  const MeshShape shape = options.shape(args.world->size);
  const SlotPlan plan(table, options);
  const bool is_whole = shape.shard_group_size == 1;
  strata_estimate_t estimate{};
  for (uint32_t u = 0; u < table.count(); ++u) {
    const UnitInfo& unit = table.unit(u);
    const uint64_t shard_numel = shape.shard_numel(unit.numel);
    estimate.param_bytes += shard_numel * sizeof(float);
    uint64_t sent = 0;
    if (unit.is_trainable) {
      estimate.grad_bytes += shard_numel * sizeof(float);
      estimate.partition_numel += shard_numel;
      if (shape.world > 1) sent += shape.reduce_sent(unit.numel);
    }
    if (!is_whole) {
      const bool is_gathered_again = unit.has_backward && !plan.has_own_parameter_slot[u];
      sent += (is_gathered_again ? 2 : 1) * shape.gather_sent(unit.numel);
      if (plan.has_own_parameter_slot[u]) estimate.gathered_peak_bytes += unit.bytes();
      if (plan.has_own_gradient_slot[u]) estimate.staging_peak_bytes += unit.bytes();
    }
    estimate.sent_bytes_per_step += sent * sizeof(float);
  }
  if (is_whole) return estimate;
  estimate.gathered_peak_bytes += plan.shared_parameter_slots * plan.shared_parameter_bytes;
  estimate.staging_peak_bytes += plan.shared_gradient_slots * plan.shared_gradient_bytes;
  return estimate;
}

}  // namespace strata::sdk
