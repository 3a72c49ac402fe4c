// Whole parameters on every rank: `ddp` in any world, `single` in a world of one.
//
// Memory per rank, for P parameters under Adam on N ranks, in bytes (P padded to multiples of 64 x
// N elements a unit), where c, a and r are the bytes of an element in compute, accumulate and
// reduce dtype:
//   params cP   grads aP   optimizer 8P, and 4P for masters if c = 2
//   staging: r x the largest bucket, where the dtypes on the wire and at rest differ
// Sent per rank and step: 2 (N-1)/N x rP, of trainable units.
//
// One step of ddp:
//   gradient_target(unit)  the unit's place in its bucket: gradients are written where they are
//                          reduced
//   after_backward(unit)   when the last unit of a bucket is done, all_reduce the bucket on the
//                          side stream, while earlier units still compute
//   end_backward()         the compute stream waits for the last bucket
//   after_step()           16-bit parameters are rounded from their masters
// Without sync the next micro-batch adds to what is there; only the last one reduces.
#ifndef STRATA_PLUGINS_DDP_REPLICATED_H_
#define STRATA_PLUGINS_DDP_REPLICATED_H_

#include <memory>
#include <string>
#include <vector>

#include "strata/sdk/host.h"
#include "strata/sdk/master.h"
#include "strata/sdk/membership.h"
#include "strata/sdk/model_table.h"
#include "strata/sdk/opened_unit.h"
#include "strata/sdk/strategy.h"

namespace strata::ddp {

struct ReplicatedOptions {
  uint64_t first_bucket_bytes = 1 << 20;
  uint64_t bucket_bytes = 25 << 20;
  bool overlap_comm = true;  // reduce during backward; false: at its end

  std::string text() const;  // what ranks must agree on
};

class Replicated final : public sdk::Strategy {
 public:
  Replicated(const strata_create_args_t& args, const ReplicatedOptions& options);

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
  void all_reduce_small(const strata_small_reduction_t& reduction) override {
    group().all_reduce_small(reduction);
  }

  void quiesce() override { member_.quiesce(); }
  void abort(const char* reason) noexcept override { member_.abort(reason); }
  void detach() override;
  sdk::Communicator* communicator() override { return member_.communicator(); }

  static strata_estimate_t estimate(const strata_create_args_t& args,
                                    const ReplicatedOptions& options, const strata_model_t& model);

 private:
  struct Unit {
    sdk::Buffer parameters;
    sdk::Master master;
    uint32_t bucket = STRATA_NONE;  // STRATA_NONE: not trained
    uint64_t gradient_offset = 0;   // elements into the bucket
    bool has_gradient = false;      // of an earlier micro-batch of this window
  };
  // Gradients that are reduced together, of the same dtypes.
  struct Bucket {
    sdk::Buffer gradients;
    int32_t dtype = STRATA_DTYPE_F32;       // at rest
    int32_t wire_dtype = STRATA_DTYPE_F32;  // on the wire
    uint64_t numel = 0;
    uint32_t units = 0;
    uint32_t units_done = 0;  // in this backward
    sdk::Event computed;      // its gradients are written
    sdk::Event reduced;

    bool is_cast() const { return wire_dtype != dtype; }
    uint64_t wire_bytes() const { return numel * sdk::element_bytes(wire_dtype); }
  };
  // Where a unit lies among the buckets, by unit; the buckets without memory.
  struct BucketPlan {
    std::vector<uint32_t> bucket;  // STRATA_NONE: not trained
    std::vector<uint64_t> offset;  // elements into the bucket
    std::vector<Bucket> buckets;
    uint64_t wire_bytes = 0;  // of the largest bucket that is cast

    BucketPlan(const sdk::ModelTable& model, const ReplicatedOptions& options, uint32_t world);
  };

  uint32_t world() const { return member_.world(); }
  void allocate();
  void allocate_buckets();
  void make_partitions();
  void reduce(Bucket& bucket);
  strata_unit_view_t view(uint32_t unit) const;
  void* gradient(const Unit& unit) const;
  strata_stream_t compute() const { return sdk::services().streams->compute(host_); }
  sdk::RankGroup& group() { return member_.group(); }

  strata_host_t* host_;
  ReplicatedOptions options_;
  sdk::ModelTable model_;
  std::vector<Unit> units_;
  std::vector<Bucket> buckets_;
  std::vector<strata_partition_t> partitions_;
  sdk::Buffer wire_;  // a bucket in another dtype; used on the stream of collectives alone
  sdk::OpenedUnit opened_;
  // Last, so that it ends first: its collectives use the memory above.
  sdk::Membership member_;
};

}  // namespace strata::ddp

#endif  // STRATA_PLUGINS_DDP_REPLICATED_H_
