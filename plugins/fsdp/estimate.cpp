// What fsdp needs: which slots it has, and from that bytes and traffic before it runs.
#include <algorithm>

#include "fsdp.h"

namespace strata::fsdp {
namespace {

constexpr uint32_t kGradientSlots = 2;  // one is written while the other is reduced

const char* word(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string FsdpOptions::text() const {
  return std::string("option reshard_after_forward ") + word(reshard_after_forward) +
         "\noption backward_prefetch " + std::to_string(static_cast<int>(backward_prefetch)) +
         "\noption forward_prefetch " + word(forward_prefetch) + "\noption limit_all_gathers " +
         std::to_string(limit_all_gathers) + "\noption sync_each_batch " + word(sync_each_batch) +
         "\noption overlap_comm " + word(overlap_comm) + "\n";
}

SlotPlan::SlotPlan(const sdk::ModelTable& model, const FsdpOptions& options) {
  for (uint32_t u = 0; u < model.count(); ++u) {
    const sdk::UnitInfo& unit = model.unit(u);
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

strata_estimate_t Fsdp::estimate(const strata_create_args_t& args, const FsdpOptions& options,
                                 const strata_model_t& model) {
  const uint64_t world = args.world->size;
  const sdk::ModelTable table = sdk::ModelTable::padded(model, args.world->size);
  const SlotPlan plan(table, options);
  strata_estimate_t estimate{};
  for (uint32_t u = 0; u < table.count(); ++u) {
    const sdk::UnitInfo& unit = table.unit(u);
    const uint64_t slice_bytes = unit.bytes() / world;
    estimate.param_bytes += slice_bytes;
    if (unit.is_trainable) {
      estimate.grad_bytes += slice_bytes;
      estimate.partition_numel += unit.numel / world;
    }
    if (world == 1) continue;
    const bool is_gathered_again = unit.has_backward && !plan.has_own_parameter_slot[u];
    const uint64_t collectives = 1 + (is_gathered_again ? 1 : 0) + (unit.is_trainable ? 1 : 0);
    estimate.sent_bytes_per_step += collectives * (world - 1) * slice_bytes;
    if (plan.has_own_parameter_slot[u]) estimate.gathered_peak_bytes += unit.bytes();
    if (plan.has_own_gradient_slot[u]) estimate.staging_peak_bytes += unit.bytes();
  }
  if (world == 1) return estimate;
  estimate.gathered_peak_bytes += plan.shared_parameter_slots * plan.shared_parameter_bytes;
  estimate.staging_peak_bytes += plan.shared_gradient_slots * plan.shared_gradient_bytes;
  return estimate;
}

}  // namespace strata::fsdp
