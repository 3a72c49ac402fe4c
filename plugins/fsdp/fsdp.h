// Fully sharded data parallelism: every rank keeps one slice of each unit and gathers units for as
// long as they compute.
//
// Memory per rank, for P fp32 parameters under Adam on N ranks, in bytes (P padded to multiples of
// 64 x N elements a unit):
//   params 4P/N   grads 4P/N   optimizer 8P/N
//   gathered at most: units at the ends of the model + limit_all_gathers x the largest other unit
//   staging: gradient slots of the same shape, two of them for the other units
// Sent per rank and step: (N-1)/N x 4 x (3P - K), where K are the parameters of units that stay
// gathered between forward and backward: those at the ends, and all with
// reshard_after_forward=false.
//
// One step:
//   before_forward(unit)   all_gather its slices into a slot; start the next unit's gather
//   after_forward(unit)    release the slot behind an event of the compute stream
//   before_backward(unit)  all_gather again; start the next one's
//   after_backward(unit)   reduce_scatter its gradients from their slot into the slice, release
//   both slots end_backward()         the compute stream waits for the last reduce_scatter
// Gathers read and write slices and slots in place: nothing is copied in or out.
//
// Without sync a unit's gradients are kept whole (4P more, allocated at the first such micro-batch)
// and reduced once, at the last micro-batch; with sync_each_batch=true they are reduced each time
// and added in the slice.
#ifndef STRATA_PLUGINS_FSDP_FSDP_H_
#define STRATA_PLUGINS_FSDP_FSDP_H_

#include <memory>
#include <optional>
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
  void before_step() override {}
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
    bool has_own_slot = false;   // at an end of the model, or nothing is resharded
    bool has_kept = false;       // kept_gradients hold sums of this window
    bool has_reduced = false;    // gradient_shard holds sums of this window (sync_each_batch)
    bool is_handed_out = false;  // the host was told of its slot
  };

  bool is_alone() const { return world_ == 1; }
  uint64_t slice_bytes(uint32_t unit) const { return model_.unit(unit).bytes() / world_; }
  void choose_own_slots();
  void allocate_units();
  void allocate_rings();
  void make_partitions();

  // Starts the gather of a unit that is not gathered. False if no slot is free now (prefetching
  // only).
  bool gather(uint32_t unit, bool is_needed);
  void prefetch(uint32_t unit);
  strata_unit_view_t gathered_view(uint32_t unit);
  void release(uint32_t unit);
  void reduce(uint32_t unit);
  void reduce_and_add(uint32_t unit, const void* from);
  strata_stream_t compute() const { return sdk::services().streams->compute(host_); }

  strata_host_t* host_;
  uint32_t rank_;
  uint32_t world_;
  FsdpOptions options_;
  std::optional<sdk::RankGroup> group_;
  sdk::ModelTable model_;
  std::vector<Unit> units_;
  std::vector<strata_partition_t> partitions_;
  sdk::SlotRing parameter_slots_;
  sdk::SlotRing gradient_slots_;
  sdk::Buffer added_;    // staging of sync_each_batch: one slice
  sdk::Event computed_;  // what the next collective must wait for
  sdk::Event last_reduced_;
  sdk::Buffer opened_;  // the unit of open_unit
  uint32_t opened_unit_ = STRATA_NONE;
  int32_t opened_intent_ = 0;
};

}  // namespace strata::fsdp

#endif  // STRATA_PLUGINS_FSDP_FSDP_H_
