// ZeRO stages 1 and 2: every rank computes with whole parameters, but updates only its own slice.
//
// Memory per rank, for P parameters under Adam on N ranks, in bytes (P padded to multiples of 64 x
// N elements a unit), where c, a and r are the bytes of an element in compute, accumulate and
// reduce dtype:
//              params   grads   optimizer   staging
//   stage 1      cP       aP      8P/N      0
//   stage 2      cP       aP/N    8P/N      a gradient slot a root unit + two of the largest other
// With c = 2 fp32 masters add 4P/N to the optimizer; where the dtypes on the wire and at rest
// differ, r x the largest unit (stage 2: and its slice) is staging.
// Sent per rank and step: (N-1)/N x (r + c)P, of trainable units.
//
// One step:
//   before_forward(unit)   hand over the event behind which the unit is whole again
//   after_backward(unit)   reduce_scatter its gradients, while earlier units still compute: stage 1
//                          into this rank's slice of them, stage 2 from a slot into a slice that
//                          stays, and the slot is released
//   end_backward()         the compute stream waits for the last reduce_scatter
//   after_step()           round 16-bit slices from their masters, all_gather the updated slices,
//   unit by unit, in the order in which the
//                          next forward wants them
// Without sync gradients are kept whole and reduced once; stage 2 allocates aP for that at the
// first such micro-batch, or reduces each time and adds slices with sync_each_batch=true.
//
// On CPU peers read a slice in place while it is gathered. The compute stream has waited for the
// gather of every unit before its gradients exist, and a gather that has ended here has ended
// everywhere: an update may start as soon as its gradient is ready.
#ifndef STRATA_PLUGINS_ZERO_SLICED_UPDATE_H_
#define STRATA_PLUGINS_ZERO_SLICED_UPDATE_H_

#include <string>
#include <vector>

#include "strata/sdk/host.h"
#include "strata/sdk/master.h"
#include "strata/sdk/membership.h"
#include "strata/sdk/model_table.h"
#include "strata/sdk/opened_unit.h"
#include "strata/sdk/shard_mesh.h"
#include "strata/sdk/sliced_gradients.h"
#include "strata/sdk/strategy.h"

namespace strata::zero {

struct SlicedUpdateOptions {
  bool slices_gradients = false;  // stage 2
  bool sync_each_batch = false;   // stage 2 only
  bool overlap_comm = true;

  std::string text() const;  // what ranks must agree on
};

class SlicedUpdate final : public sdk::Strategy {
 public:
  SlicedUpdate(const strata_create_args_t& args, const SlicedUpdateOptions& options);

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
  sdk::Communicator* communicator() override { return member_.communicator(); }

  static strata_estimate_t estimate(const strata_create_args_t& args,
                                    const SlicedUpdateOptions& options,
                                    const strata_model_t& model);

 private:
  struct Unit {
    sdk::Buffer parameters;  // whole
    sdk::Master master;      // of this rank's slice of them
    sdk::Event gathered;
  };

  const std::string& name() const { return member_.name(); }
  uint32_t world() const { return member_.world(); }
  bool is_alone() const { return member_.is_alone(); }
  sdk::MeshShape shape() const { return {world(), world(), true}; }
  sdk::Slice slice(uint32_t unit) const {
    return sdk::slice_of(model_.unit(unit).numel, member_.rank(), world());
  }
  // This rank's slice of the parameters.
  char* parameter_slice(uint32_t unit) const;
  void allocate();
  void make_partitions();
  strata_unit_view_t view(uint32_t unit) const;
  void store_opened(uint32_t unit);
  // The stream of collectives waits for what is queued in the compute stream.
  void hold_collectives();
  strata_stream_t compute() const { return sdk::services().streams->compute(host_); }
  sdk::RankGroup& group() { return member_.group(); }

  strata_host_t* host_;
  SlicedUpdateOptions options_;
  sdk::ModelTable model_;
  std::vector<Unit> units_;
  std::vector<uint32_t> forward_order_;
  std::vector<strata_partition_t> partitions_;
  sdk::Event computed_;  // what the next gather must wait for
  sdk::OpenedUnit opened_;
  sdk::ShardMesh mesh_;
  sdk::SlicedGradients gradients_;
  // Last, so that it ends first: its collectives use the memory above.
  sdk::Membership member_;
};

}  // namespace strata::zero

#endif  // STRATA_PLUGINS_ZERO_SLICED_UPDATE_H_
