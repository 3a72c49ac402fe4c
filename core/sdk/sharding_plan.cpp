#include "strata/sdk/sharding_plan.h"

#include <algorithm>

#include "strata/sdk/sliced_gradients.h"

namespace strata::sdk {
namespace {

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
    const bool is_kept = model.is_root(u) || !options.reshard_after_forward;
    has_own_slot.push_back(is_kept && unit.numel > 0);
    if (unit.numel == 0 || is_kept) continue;
    ++shared_slots;
    shared_bytes = std::max(shared_bytes, unit.parameter_bytes());
  }
  shared_slots = std::min(shared_slots, options.limit_all_gathers);
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
    estimate.param_bytes += unit.parameter_bytes() / shape.shard_group_size;
    estimate.master_bytes += unit.master_bytes() / shape.shard_group_size;
    if (unit.is_trainable) estimate.partition_numel += shape.shard_numel(unit.numel);
    if (is_whole) continue;
    const bool is_gathered_again = unit.has_backward && !plan.has_own_slot[u];
    estimate.sent_bytes_per_step += (is_gathered_again ? 2 : 1) * shape.gather_sent(unit.numel) *
                                    element_bytes(unit.compute_dtype);
    if (plan.has_own_slot[u]) estimate.gathered_peak_bytes += unit.parameter_bytes();
  }
  if (!is_whole) estimate.gathered_peak_bytes += plan.shared_slots * plan.shared_bytes;
  GradientPlan(table, shape, /*wants_slices=*/true).add_to(estimate, table, shape);
  return estimate;
}

}  // namespace strata::sdk
