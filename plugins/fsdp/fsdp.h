// Fully sharded data parallelism: every rank keeps one slice of each unit and gathers units for as
// long as they compute.
//
// Memory per rank, for P fp32 parameters under Adam on N ranks, in bytes (P padded to multiples of
// 64 x N elements a unit):
//   params 4P/N   grads 4P/N   optimizer 8P/N
//   gathered at most: root units + limit_all_gathers x the largest other unit
//   staging: one gradient slot a root unit + two of the largest other one
// A root unit is one in which forward and backward meet: it is entered first or last of all, or
// more than once. It stays gathered from its forward to its backward.
//
// Sent per rank and step: (N-1)/N x 4 x (3P - K), where K are the parameters that are gathered once
// only, not twice: those of root units, and all with reshard_after_forward=false. (Frozen units are
// not reduced; those in front of everything that is trained have no backward.)
//
// One step:
//   before_forward(unit)   all_gather its slices into a slot; start the next unit's gather
//   after_forward(unit)    release the slot behind an event of the compute stream
//   before_backward(unit)  all_gather again; start the next one's
//   after_backward(unit)   reduce_scatter its gradients from their slot into the slice; release
//                          both slots
//   end_backward()         the compute stream waits for the last reduce_scatter
// Gathers and reductions read and write slices and slots in place: nothing is copied in or out.
//
// Without sync a unit's gradients are kept whole (4P more, allocated at the first such micro-batch)
// and reduced once, at the last micro-batch, as ddp does and so with the same bits; with
// sync_each_batch=true they are reduced each time and added in the slice.
//
// Note [Slices are read in place]: on CPU peers read a slice where it lies for as long as a gather
// of its unit runs. A gather that the host waits for has ended everywhere, one that a wrong hint
// began has not. So no gather of a unit is begun behind its backward by a hint alone (its update
// may start at once), and before_step() waits for those that are under way.
#ifndef STRATA_PLUGINS_FSDP_FSDP_H_
#define STRATA_PLUGINS_FSDP_FSDP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/sdk/host.h"
#include "strata/sdk/model_table.h"
#include "strata/sdk/rank_group.h"
#include "strata/sdk/slot_ring.h"
#include "strata/sdk/strategy.h"

namespace strata::fsdp {

enum class BackwardPrefetch {
  kPre,   // the next gather starts before this unit's backward computes
  kPost,  // ... behind this unit's backward
  kNone,
};

struct FsdpOptions {
  bool reshard_after_forward = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool forward_prefetch = true;
  uint32_t limit_all_gathers = 2;
  bool sync_each_batch = false;
  bool overlap_comm = true;

  std::string text() const;  // what ranks must agree on
};

// Which units have slots of their own, and how large the shared ones are.
struct SlotPlan {
  std::vector<bool> has_own_parameter_slot;  // by unit
  std::vector<bool> has_own_gradient_slot;
  uint32_t shared_parameter_slots = 0;
  uint32_t shared_gradient_slots = 0;
  uint64_t shared_parameter_bytes = 0;  // of one slot
  uint64_t shared_gradient_bytes = 0;

  SlotPlan() = default;
  SlotPlan(const sdk::ModelTable& model, const FsdpOptions& options);
};

class Fsdp final : public sdk::Strategy {
 public:
  Fsdp(const strata_create_args_t& args, const FsdpOptions& options);

  strata_layout_t layout(const strata_unit_t& unit) override;
  void attach(const strata_model_t& model) override;
  strata_unit_view_t open_unit(uint32_t unit, int32_t intent) override;
  void close_unit(uint32_t unit) override;

  strata_unit_view_t before_forward(const strata_unit_context_t& context) override;
  int32_t after_forward(const strata_unit_context_t& context) override;
  strata_unit_view_t before_backward(const strata_unit_context_t& context) override;
  strata_gradient_target_t gradient_target(const strata_unit_context_t& context) override;
  int32_t after_backward(const strata_unit_context_t& context) override;
  void end_backward(bool sync) override;

  const std::vector<strata_partition_t>& partitions() override { return partitions_; }
  void before_step() override;
  void after_step(bool updated) override;
  void all_reduce_small(const strata_small_reduction_t& reduction) override;

  void quiesce() override;
  void abort(const char* reason) noexcept override;
  void detach() override;
  sdk::Communicator* communicator() override;

  static strata_estimate_t estimate(const strata_create_args_t& args, const FsdpOptions& options,
                                    const strata_model_t& model);

 private:
  struct Unit {
    sdk::Buffer shard;           // this rank's slice of the parameters, which is also the master
    sdk::Buffer gradient_shard;  // this rank's slice of the reduced gradients
    sdk::Buffer kept_gradients;  // whole, from the first micro-batch without sync on
    sdk::Event gradient_ready;
    bool has_kept = false;     // kept_gradients hold sums of this window
    bool has_reduced = false;  // gradient_shard holds sums of this window (sync_each_batch)
    bool is_done = false;      // its backward is over: Note [Slices are read in place]
  };

  uint32_t world() const { return group_config_.size; }
  bool is_alone() const { return world() == 1; }
  uint64_t slice_numel(uint32_t unit) const { return model_.unit(unit).numel / world(); }
  uint64_t slice_bytes(uint32_t unit) const { return model_.unit(unit).bytes() / world(); }
  // Whether the slice is the unit: nothing is ever gathered.
  bool is_whole(uint32_t unit) const { return is_alone() || model_.unit(unit).numel == 0; }
  void allocate();
  void allocate_units();
  void allocate_rings();
  void make_partitions();

  // Starts the gather of a unit into a slot.
  void gather_into(sdk::SlotRing::Slot& slot, uint32_t unit);
  // Starts the gather of a unit that will be wanted, if it has none and a slot is free.
  void prefetch(uint32_t unit);
  // The unit for the host, gathered by now or later.
  strata_unit_view_t lend(uint32_t unit, const char* span);
  void reduce(uint32_t unit);
  void reduce_and_add(uint32_t unit, const void* from);
  void forget_done();
  strata_stream_t compute() const { return sdk::services().streams->compute(host_); }
  sdk::RankGroup& group();

  strata_host_t* host_;
  FsdpOptions options_;
  sdk::RankGroupConfig group_config_;
  sdk::AbortSwitch abort_;
  sdk::ModelTable model_;
  SlotPlan plan_;
  std::vector<Unit> units_;
  std::vector<strata_partition_t> partitions_;
  sdk::SlotRing parameter_slots_;
  sdk::SlotRing gradient_slots_;
  sdk::Buffer added_;              // staging of sync_each_batch: one slice
  sdk::Event slices_are_written_;  // what gathers must wait for
  sdk::Event computed_;            // what the next reduction must wait for
  sdk::Event last_reduced_;
  bool is_backward_over_ = false;  // and no forward that another follows has begun
  sdk::Buffer opened_;             // the unit of open_unit
  uint32_t opened_unit_ = STRATA_NONE;
  int32_t opened_intent_ = 0;
  // Last, so that it ends first: its collectives use the memory above.
  std::optional<sdk::RankGroup> group_;
};

}  // namespace strata::fsdp

#endif  // STRATA_PLUGINS_FSDP_FSDP_H_
