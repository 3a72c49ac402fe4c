// libstrata_fsdp.so: the strategies `fsdp` and `hsdp`, names and options over sdk::FullSharding.
// See strata/sdk/full_sharding.h for memory, messages and one step, README.md for options.
#include "strata/sdk/dtypes.h"
#include "strata/sdk/full_sharding.h"
#include "strata/sdk/options.h"
#include "strata/sdk/plugin_entry.h"

namespace strata::fsdp {
namespace {

const std::vector<sdk::OptionInfo>& fsdp_options() {
  static const std::vector<sdk::OptionInfo> options = {
      {"reshard_after_forward", "true",
       "free units between forward and backward; false: keep them gathered"},
      {"backward_prefetch", "backward_pre",
       "when backward starts the next gather: backward_pre, backward_post, none"},
      {"forward_prefetch", "true", "start the next gather while a unit computes in forward"},
      {"limit_all_gathers", "2", "slots for gathered units, 1 to 64"},
      {"sync_each_batch", "false",
       "reduce in every micro-batch instead of keeping whole gradients until the last"},
      {"overlap_comm", "true", "collectives on a stream of their own"},
  };
  return options;
}

const std::vector<sdk::OptionInfo>& hsdp_options() {
  static const std::vector<sdk::OptionInfo> options = [] {
    std::vector<sdk::OptionInfo> all = fsdp_options();
    all.push_back(
        {"shard_group_size", "0", "ranks over which units are sharded; 0: the ranks of this node"});
    all.push_back({"deterministic", "true",
                   "add gradients in rank order, as ddp does; false: in groups, then across"});
    return all;
  }();
  return options;
}

sdk::FullShardingOptions parse(const sdk::Options& options) {
  sdk::FullShardingOptions parsed;
  parsed.reshard_after_forward = options.flag("reshard_after_forward");
  parsed.backward_prefetch = static_cast<sdk::BackwardPrefetch>(
      options.choice("backward_prefetch", {"backward_pre", "backward_post", "none"}));
  parsed.forward_prefetch = options.flag("forward_prefetch");
  parsed.limit_all_gathers = static_cast<uint32_t>(options.integer("limit_all_gathers", 1, 64));
  parsed.sync_each_batch = options.flag("sync_each_batch");
  parsed.overlap_comm = options.flag("overlap_comm");
  return parsed;
}

sdk::FullShardingOptions parse_fsdp(const strata_create_args_t& args) {
  return parse(sdk::Options(args, fsdp_options()));
}

sdk::FullShardingOptions parse_hsdp(const strata_create_args_t& args) {
  const sdk::Options options(args, hsdp_options());
  sdk::FullShardingOptions parsed = parse(options);
  const auto asked = static_cast<uint32_t>(options.integer("shard_group_size", 0, 1 << 20));
  const uint32_t world = args.world->size;
  parsed.shard_group_size = asked == 0 ? args.world->local_size : asked;
  parsed.sums_in_rank_order = options.flag("deterministic");
  if (parsed.shard_group_size > 0 && world % parsed.shard_group_size == 0) return parsed;
  throw sdk::Error(STRATA_E_INVALID_ARGUMENT,
                   "hsdp: shard_group_size = " + std::to_string(parsed.shard_group_size) +
                       (asked == 0 ? " (the ranks of this node)" : "") +
                       " does not divide a world of " + std::to_string(world) +
                       " ranks. HINT: a divisor of " + std::to_string(world) +
                       ", for example shard_group_size=" + std::to_string(world));
}

std::unique_ptr<sdk::Strategy> create_fsdp(const strata_create_args_t& args) {
  return std::make_unique<sdk::FullSharding>(args, parse_fsdp(args));
}

std::unique_ptr<sdk::Strategy> create_hsdp(const strata_create_args_t& args) {
  return std::make_unique<sdk::FullSharding>(args, parse_hsdp(args));
}

strata_estimate_t estimate_fsdp(const strata_create_args_t& args, const strata_model_t& model) {
  return sdk::estimate_full_sharding(args, parse_fsdp(args), model);
}

strata_estimate_t estimate_hsdp(const strata_create_args_t& args, const strata_model_t& model) {
  return sdk::estimate_full_sharding(args, parse_hsdp(args), model);
}

strata_capabilities_t capabilities(const char* summary) {
  strata_capabilities_t can{};
  can.struct_size = sizeof(can);
  can.min_world = 1;
  can.flags = STRATA_CAN_NO_SYNC | STRATA_CAN_SYNC_EACH_BATCH | STRATA_CAN_TIED |
              STRATA_CAN_FROZEN | STRATA_CAN_UNUSED | STRATA_CAN_RECOMPUTE | STRATA_CAN_INFERENCE;
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU) | STRATA_DEVICE_BIT(STRATA_DEVICE_CUDA);
  can.compute_dtypes = can.reduce_dtypes = can.accumulate_dtypes = sdk::kTrainedDtypes;
  can.summary = summary;
  return can;
}

const std::vector<sdk::StrategyInfo>& strategies() {
  static const std::vector<sdk::StrategyInfo> all = {
      {"fsdp",
       capabilities(
           "parameters, gradients and optimizer sharded; units gathered while they compute"),
       fsdp_options(),
       create_fsdp,
       estimate_fsdp,
       {{"full_shard", "reshard_after_forward=true"},
        {"shard_grad_op", "reshard_after_forward=false"}}},
      {"hsdp",
       capabilities("sharded as fsdp inside groups of ranks, replicated across them"),
       hsdp_options(),
       create_hsdp,
       estimate_hsdp,
       {{"hybrid_shard", "reshard_after_forward=true"},
        {"hybrid_shard_zero2", "reshard_after_forward=false"}}},
  };
  return all;
}

}  // namespace
}  // namespace strata::fsdp

STRATA_PLUGIN("strata.fsdp", "0.1.0", strata::fsdp::strategies)
