// Gradients under a strategy in which a rank updates slices: where they are written, kept, added
// up and reduced.
//
// Of each trainable unit a rank keeps at rest either the slice that it updates (sliced), or the
// whole, in which that slice lies (whole):
//
//            a micro-batch is written to    reduced into     kept without sync in
//   sliced   a slot of a ring               the slice        a whole that is allocated then
//   whole    the whole                      its own slice    the whole
//
// Kept gradients are reduced once, at the last micro-batch, and so with the bits of an all-reduce.
// With each_batch=true sliced gradients are reduced in every micro-batch and added in the slice.
//
// Note [The dtypes of a gradient]. Targets, slices and wholes have the unit's accumulate dtype, the
// wire has its reduce dtype. Where these are equal, a reduction reads the target and writes the
// slice in place. Otherwise
//
//   target --cast--> wire (one unit) --reduce--> landing (one slice) --cast or add--> slice
//
// with one wire and one landing for all units: both are used on the stream of collectives alone,
// which is in order. Wholes land in the wire itself. Ranks of a world of one send nothing, and so
// nothing is cast.
#ifndef STRATA_SDK_SLICED_GRADIENTS_H_
#define STRATA_SDK_SLICED_GRADIENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/sdk/host.h"
#include "strata/sdk/model_table.h"
#include "strata/sdk/rank_group.h"
#include "strata/sdk/shard_mesh.h"
#include "strata/sdk/slot_ring.h"

namespace strata::sdk {

// How many slots and how much staging there is.
struct GradientPlan {
  bool is_sliced = false;
  std::vector<bool> has_own_slot;  // by unit; of roots, if sliced
  uint32_t shared_slots = 0;
  uint64_t shared_bytes = 0;   // of one shared slot
  uint64_t wire_bytes = 0;     // of the largest unit that is cast for the wire
  uint64_t landing_bytes = 0;  // of the largest slice that comes from there

  GradientPlan() = default;
  // A rank updates 1 / shape.shard_group_size of each unit. Without sharing ranks nothing is
  // sliced, whatever `wants_slices` says.
  GradientPlan(const ModelTable& model, const MeshShape& shape, bool wants_slices);

  // Adds gradients at rest, staging, and what reductions send in a step of one micro-batch.
  void add_to(strata_estimate_t& estimate, const ModelTable& model, const MeshShape& shape) const;
};

class SlicedGradients {
 public:
  struct Config {
    strata_host_t* host;
    std::string strategy;  // for trace spans, for example "fsdp"
    bool is_sliced;
    bool each_batch;  // sliced only
  };

  SlicedGradients() = default;
  // Allocates what lies at rest. All but `config` outlive this object.
  SlicedGradients(Config config, const ModelTable& model, RankGroup& group, ShardMesh& mesh);

  // As the slot gradient_target. REQUIRES: the unit is trainable.
  strata_gradient_target_t target(const strata_unit_context_t& context);
  // Starts the reduction of what was written to the target, or keeps it. Nothing if the unit is not
  // trainable.
  void after_backward(const strata_unit_context_t& context);
  // The compute stream waits for what was started.
  void end_backward(bool sync);

  // This rank's slice of the reduced gradients, all pieces one behind the other; null if the unit
  // is not trainable. Stable.
  char* slice(uint32_t unit) const;
  // For partitions: recorded by after_backward. Null in a world of one rank.
  strata_event_t ready(uint32_t unit) const;

 private:
  struct Unit {
    Buffer slice;
    Buffer whole;
    Event ready;
    bool has_kept = false;     // `whole` holds sums of this window
    bool has_reduced = false;  // `slice` holds sums of this window (each_batch)
  };

  void allocate_units();
  void allocate_slots(const GradientPlan& plan);
  Buffer buffer(int32_t tag, uint64_t bytes, uint32_t flags, const std::string& label) const;
  void allocate_kept(uint32_t unit);
  void reduce(uint32_t unit);
  // Where this rank's slice of the sum arrives: where it belongs, or in staging.
  char* landing(uint32_t unit);
  // From staging to where it belongs.
  void take_landed(uint32_t unit, const char* landed);
  bool casts(uint32_t unit) const { return !group_->is_alone() && model_->unit(unit).is_cast(); }
  uint64_t slice_numel(uint32_t unit) const;
  strata_stream_t compute() const { return services().streams->compute(config_.host); }

  Config config_{};
  const ModelTable* model_ = nullptr;
  RankGroup* group_ = nullptr;
  ShardMesh* mesh_ = nullptr;
  std::vector<Unit> units_;
  SlotRing slots_;
  // Note [The dtypes of a gradient]
  Buffer wire_;
  Buffer landing_;
  Buffer added_;    // the landing of each_batch where nothing is cast
  Event computed_;  // what the next reduction must wait for
  Event last_reduced_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_SLICED_GRADIENTS_H_
