// Full sharding: every rank keeps one shard of each unit and gathers units for as long as they
// compute. The engine under strategies that differ in names and options only.
//
// Memory per rank, for P parameters under Adam in groups of S ranks (S = N without replication), in
// bytes (P padded to multiples of 64 x N elements a unit), where c, a and r are the bytes of an
// element in compute, accumulate and reduce dtype:
//   params cP/S   grads aP/S   optimizer 8P/S, and 4P/S for masters if c = 2
//   gathered at most: c x (root units + limit_all_gathers x the largest other unit)
//   staging: a x (root units + two of the largest other one), and if the dtypes on the wire and at
//   rest differ r x (the largest unit + the largest shard)
// A root unit is one in which forward and backward meet: it is entered first or last of all, or
// more than once. It stays gathered from its forward to its backward.
//
// Sent per rank and step: (S-1)/S x c x (2P - K) for gathers, where K are the parameters that are
// gathered once only, not twice: those of root units, and all with reshard_after_forward=false;
// and (1 + 1/S - 2/N) x rP for reductions, which is (N-1)/N x rP with S = N. (Frozen units are not
// reduced; those in front of everything that is trained have no backward.)
//
// One step:
//   before_forward(unit)   all_gather its shards into a slot; start the next unit's gather
//   after_forward(unit)    release the slot behind an event of the compute stream
//   before_backward(unit)  all_gather again; start the next one's
//   after_backward(unit)   reduce its gradients from their slot into the shard; release both slots
//   end_backward()         the compute stream waits for the last reduction
//   after_step()           16-bit shards are rounded from their masters
// Gathers and reductions read and write shards and slots in place: nothing is copied in or out, but
// for gradients of another dtype on the wire (Note [The dtypes of a gradient]).
//
// Without sync a unit's gradients are kept whole (aP more, allocated at the first such micro-batch)
// and reduced once, at the last micro-batch, and so with the bits of an all-reduce; with
// sync_each_batch=true they are reduced each time and added in the shard.
//
// Note [Slices are read in place]: on CPU peers read a shard where it lies for as long as a gather
// of its unit runs. A gather that the host waits for has ended everywhere, one that a wrong hint
// began has not. So no gather of a unit is begun behind its backward by a hint alone (its update
// may start at once), and before_step() waits for those that are under way.
#ifndef STRATA_SDK_FULL_SHARDING_H_
#define STRATA_SDK_FULL_SHARDING_H_

#include <memory>
#include <string>
#include <vector>

#include "strata/sdk/host.h"
#include "strata/sdk/master.h"
#include "strata/sdk/membership.h"
#include "strata/sdk/model_table.h"
#include "strata/sdk/opened_unit.h"
#include "strata/sdk/shard_mesh.h"
#include "strata/sdk/sharding_plan.h"
#include "strata/sdk/sliced_gradients.h"
#include "strata/sdk/slot_ring.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk {

class FullSharding final : public Strategy {
 public:
  FullSharding(const strata_create_args_t& args, const FullShardingOptions& options);

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
  void all_reduce_small(const strata_small_reduction_t& reduction) override {
    group().all_reduce_small(reduction);
  }

  void quiesce() override { member_.quiesce(); }
  void abort(const char* reason) noexcept override { member_.abort(reason); }
  void detach() override;
  Communicator* communicator() override { return member_.communicator(); }

 private:
  struct Unit {
    Buffer shard;          // this rank's slice of the parameters
    Master master;         // of that slice
    bool is_done = false;  // its backward is over: Note [Slices are read in place]
  };

  const std::string& name() const { return member_.name(); }
  uint32_t world() const { return member_.world(); }
  bool is_alone() const { return member_.is_alone(); }
  uint64_t shard_numel(uint32_t unit) const { return shape_.shard_numel(model_.unit(unit).numel); }
  // Whether the shard is the unit: nothing is ever gathered, and gradients are summed in it.
  // Throws if there is no such unit.
  bool is_whole(uint32_t unit) const {
    return model_.unit(unit).numel == 0 || shape_.shard_group_size == 1;
  }
  void allocate();
  void allocate_units();
  void allocate_rings();
  void make_partitions();
  void store_opened(uint32_t unit);

  // Starts the gather of a unit into a slot.
  void gather_into(SlotRing::Slot& slot, uint32_t unit);
  // Starts the gather of a unit that will be wanted, if it has none and a slot is free.
  void prefetch(uint32_t unit);
  // The unit for the host, gathered by now or later.
  strata_unit_view_t lend(uint32_t unit, const char* span);
  void forget_done();
  strata_stream_t compute() const { return services().streams->compute(host_); }
  RankGroup& group() { return member_.group(); }

  strata_host_t* host_;
  FullShardingOptions options_;
  MeshShape shape_;
  ModelTable model_;
  SlotPlan plan_;
  std::vector<Unit> units_;
  std::vector<strata_partition_t> partitions_;
  SlotRing parameter_slots_;
  Event slices_are_written_;       // what gathers must wait for
  bool is_backward_over_ = false;  // and no forward that another follows has begun
  OpenedUnit opened_;
  ShardMesh mesh_;
  SlicedGradients gradients_;
  // Last, so that it ends first: its collectives use the memory above.
  Membership member_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_FULL_SHARDING_H_
