// libstrata_zero.so: the strategies `zero1`, `zero2` and `zero3`. See sliced_update.h for memory
// and messages of the first two; `zero3` is sdk::FullSharding under DeepSpeed's names.
#include "sliced_update.h"
#include "strata/sdk/dtypes.h"
#include "strata/sdk/full_sharding.h"
#include "strata/sdk/options.h"
#include "strata/sdk/plugin_entry.h"

namespace strata::zero {
namespace {

using sdk::OptionInfo;

const OptionInfo kOverlap = {"overlap_comm", "true", "collectives on a stream of their own"};
const OptionInfo kEachBatch = {
    "sync_each_batch", "false",
    "reduce in every micro-batch instead of keeping whole gradients until the last"};

std::vector<OptionInfo> stage1_options() { return {kOverlap}; }

std::vector<OptionInfo> stage2_options() { return {kOverlap, kEachBatch}; }

std::vector<OptionInfo> stage3_options() {
  return {kOverlap,
          kEachBatch,
          {"prefetch", "true", "start the next unit's gather while one computes"},
          {"limit_all_gathers", "2", "slots for gathered units, 1 to 64"}};
}

SlicedUpdateOptions parse_stage1(const strata_create_args_t& args) {
  const sdk::Options options(args, stage1_options());
  SlicedUpdateOptions parsed;
  parsed.overlap_comm = options.flag("overlap_comm");
  return parsed;
}

SlicedUpdateOptions parse_stage2(const strata_create_args_t& args) {
  const sdk::Options options(args, stage2_options());
  SlicedUpdateOptions parsed;
  parsed.slices_gradients = true;
  parsed.sync_each_batch = options.flag("sync_each_batch");
  parsed.overlap_comm = options.flag("overlap_comm");
  return parsed;
}

sdk::FullShardingOptions parse_stage3(const strata_create_args_t& args) {
  const sdk::Options options(args, stage3_options());
  sdk::FullShardingOptions parsed;
  parsed.overlap_comm = options.flag("overlap_comm");
  parsed.sync_each_batch = options.flag("sync_each_batch");
  parsed.forward_prefetch = options.flag("prefetch");
  if (!parsed.forward_prefetch) parsed.backward_prefetch = sdk::BackwardPrefetch::kNone;
  parsed.limit_all_gathers = static_cast<uint32_t>(options.integer("limit_all_gathers", 1, 64));
  return parsed;
}

strata_capabilities_t capabilities(uint64_t more, const char* summary) {
  strata_capabilities_t can{};
  can.struct_size = sizeof(can);
  can.min_world = 1;
  can.flags = STRATA_CAN_NO_SYNC | STRATA_CAN_TIED | STRATA_CAN_FROZEN | STRATA_CAN_UNUSED |
              STRATA_CAN_RECOMPUTE | STRATA_CAN_INFERENCE | more;
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU) | STRATA_DEVICE_BIT(STRATA_DEVICE_CUDA);
  can.compute_dtypes = can.reduce_dtypes = can.accumulate_dtypes = sdk::kTrainedDtypes;
  can.summary = summary;
  return can;
}

std::unique_ptr<sdk::Strategy> create1(const strata_create_args_t& args) {
  return std::make_unique<SlicedUpdate>(args, parse_stage1(args));
}
std::unique_ptr<sdk::Strategy> create2(const strata_create_args_t& args) {
  return std::make_unique<SlicedUpdate>(args, parse_stage2(args));
}
std::unique_ptr<sdk::Strategy> create3(const strata_create_args_t& args) {
  return std::make_unique<sdk::FullSharding>(args, parse_stage3(args));
}
strata_estimate_t estimate1(const strata_create_args_t& args, const strata_model_t& model) {
  return SlicedUpdate::estimate(args, parse_stage1(args), model);
}
strata_estimate_t estimate2(const strata_create_args_t& args, const strata_model_t& model) {
  return SlicedUpdate::estimate(args, parse_stage2(args), model);
}
strata_estimate_t estimate3(const strata_create_args_t& args, const strata_model_t& model) {
  return sdk::estimate_full_sharding(args, parse_stage3(args), model);
}

const std::vector<sdk::StrategyInfo>& strategies() {
  static const std::vector<sdk::StrategyInfo> all = {
      {"zero1",
       capabilities(0, "whole parameters and gradients; optimizer sliced"),
       stage1_options(),
       create1,
       estimate1,
       {{"deepspeed_stage_1", ""}}},
      {"zero2",
       capabilities(STRATA_CAN_SYNC_EACH_BATCH, "whole parameters; gradients and optimizer sliced"),
       stage2_options(),
       create2,
       estimate2,
       {{"deepspeed_stage_2", ""}}},
      {"zero3",
       capabilities(STRATA_CAN_SYNC_EACH_BATCH, "parameters, gradients and optimizer sliced"),
       stage3_options(),
       create3,
       estimate3,
       {{"deepspeed_stage_3", ""}}},
  };
  return all;
}

}  // namespace
}  // namespace strata::zero

STRATA_PLUGIN("strata.zero", "0.1.0", strata::zero::strategies)
