// libstrata_fsdp.so: the strategy `fsdp`. See fsdp.h for memory and messages.
#include "fsdp.h"
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

FsdpOptions parse(const strata_create_args_t& args) {
  const sdk::Options options(args, fsdp_options());
  FsdpOptions parsed;
  parsed.reshard_after_forward = options.flag("reshard_after_forward");
  parsed.backward_prefetch = static_cast<BackwardPrefetch>(
      options.choice("backward_prefetch", {"backward_pre", "backward_post", "none"}));
  parsed.forward_prefetch = options.flag("forward_prefetch");
  parsed.limit_all_gathers = static_cast<uint32_t>(options.integer("limit_all_gathers", 1, 64));
  parsed.sync_each_batch = options.flag("sync_each_batch");
  parsed.overlap_comm = options.flag("overlap_comm");
  return parsed;
}

std::unique_ptr<sdk::Strategy> create(const strata_create_args_t& args) {
  return std::make_unique<Fsdp>(args, parse(args));
}

strata_estimate_t estimate(const strata_create_args_t& args, const strata_model_t& model) {
  return Fsdp::estimate(args, parse(args), model);
}

strata_capabilities_t capabilities() {
  strata_capabilities_t can{};
  can.struct_size = sizeof(can);
  can.min_world = 1;
  can.flags = STRATA_CAN_NO_SYNC | STRATA_CAN_SYNC_EACH_BATCH | STRATA_CAN_TIED |
              STRATA_CAN_FROZEN | STRATA_CAN_UNUSED | STRATA_CAN_RECOMPUTE | STRATA_CAN_INFERENCE;
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU) | STRATA_DEVICE_BIT(STRATA_DEVICE_CUDA);
  can.compute_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
  can.reduce_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
  can.summary = "parameters, gradients and optimizer sharded; units gathered while they compute";
  return can;
}

const std::vector<sdk::StrategyInfo>& strategies() {
  static const std::vector<sdk::StrategyInfo> all = {
      {"fsdp",
       capabilities(),
       fsdp_options(),
       create,
       estimate,
       {{"full_shard", "reshard_after_forward=true"},
        {"shard_grad_op", "reshard_after_forward=false"}}},
  };
  return all;
}

}  // namespace
}  // namespace strata::fsdp

STRATA_PLUGIN("strata.fsdp", "0.1.0", strata::fsdp::strategies)
