// What fsdp would need, by the same rules as it allocates and sends.
#include <algorithm>

#include "fsdp.h"
#include "strata/sdk/slices.h"

namespace strata::fsdp {
namespace {

// Places of a unit in the declared order.
struct Entries {
  uint32_t first = STRATA_NONE;
  uint32_t last = 0;
};

Entries entries_of(const strata_model_t& model, uint32_t unit) {
  Entries entries;
  for (uint32_t entry = 0; entry < model.order_count; ++entry) {
    if (model.order[entry] != unit) continue;
    entries.first = std::min(entries.first, entry);
    entries.last = entry;
  }
  return entries;
}

}  // namespace

strata_estimate_t Fsdp::estimate(const strata_create_args_t& args, const FsdpOptions& options,
                                 const strata_model_t& model) {
  const uint64_t world = args.world->size;
  strata_estimate_t estimate{};
  uint64_t largest_shared = 0;
  uint64_t largest_gradient = 0;
  for (uint32_t u = 0; u < model.unit_count; ++u) {
    const uint64_t numel = sdk::padded_numel(model.units[u], args.world->size);
    const uint64_t bytes = numel * sizeof(float);
    const bool is_trainable = model.units[u].trainable != 0;
    const Entries entries = entries_of(model, u);
    const bool is_at_end = entries.first == 0 || entries.last + 1 == model.order_count ||
                           entries.first != entries.last;
    const bool is_kept = is_at_end || !options.reshard_after_forward;
    estimate.param_bytes += bytes / world;
    if (is_trainable) {
      estimate.grad_bytes += bytes / world;
      estimate.partition_numel += numel / world;
    }
    if (world == 1) continue;
    const uint64_t collectives = (is_kept ? 1 : 2) + (is_trainable ? 1 : 0);
    estimate.sent_bytes_per_step += collectives * (world - 1) * (bytes / world);
    (is_kept ? estimate.gathered_peak_bytes : largest_shared) =
        is_kept ? estimate.gathered_peak_bytes + bytes : std::max(largest_shared, bytes);
    if (!is_trainable) continue;
    (is_at_end ? estimate.staging_peak_bytes : largest_gradient) =
        is_at_end ? estimate.staging_peak_bytes + bytes : std::max(largest_gradient, bytes);
  }
  estimate.gathered_peak_bytes += options.limit_all_gathers * largest_shared;
  estimate.staging_peak_bytes += 2 * largest_gradient;
  return estimate;
}

}  // namespace strata::fsdp
