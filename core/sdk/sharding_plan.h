// What full sharding needs: its options, which slots it has, and from that bytes and traffic before
// it runs.
#ifndef STRATA_SDK_SHARDING_PLAN_H_
#define STRATA_SDK_SHARDING_PLAN_H_

#include <string>
#include <vector>

#include "strata/sdk/model_table.h"
#include "strata/sdk/shard_mesh.h"

namespace strata::sdk {

enum class BackwardPrefetch {
  kPre,   // the next gather starts before this unit's backward computes
  kPost,  // ... behind this unit's backward
  kNone,
};

struct FullShardingOptions {
  bool reshard_after_forward = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool forward_prefetch = true;
  uint32_t limit_all_gathers = 2;
  bool sync_each_batch = false;
  bool overlap_comm = true;
  uint32_t shard_group_size = 0;   // 0: the world
  bool sums_in_rank_order = true;  // Note [Sums in rank order across groups]

  std::string text() const;  // what ranks must agree on
  MeshShape shape(uint32_t world) const;
};

// Which units are gathered into slots of their own, and how large the shared ones are.
struct SlotPlan {
  std::vector<bool> has_own_slot;  // by unit
  uint32_t shared_slots = 0;
  uint64_t shared_bytes = 0;  // of one shared slot

  SlotPlan() = default;
  SlotPlan(const ModelTable& model, const FullShardingOptions& options);
};

// As the slot estimate().
strata_estimate_t estimate_full_sharding(const strata_create_args_t& args,
                                         const FullShardingOptions& options,
                                         const strata_model_t& model);

}  // namespace strata::sdk

#endif  // STRATA_SDK_SHARDING_PLAN_H_
