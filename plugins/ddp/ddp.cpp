// libstrata_ddp.so: the strategies `ddp` and `single`. See replicated.h for memory and messages.
#include "replicated.h"
#include "strata/sdk/dtypes.h"
#include "strata/sdk/options.h"
#include "strata/sdk/plugin_entry.h"

namespace strata::ddp {
namespace {

const std::vector<sdk::OptionInfo>& ddp_options() {
  static const std::vector<sdk::OptionInfo> options = {
      {"bucket_cap_mb", "25", "size in MiB at which a bucket of gradients is reduced"},
      {"first_bucket_cap_mb", "1", "size in MiB of the first bucket, small to start early"},
      {"overlap_comm", "true", "reduce during backward; false: at its end"},
  };
  return options;
}

ReplicatedOptions parse(const strata_create_args_t& args) {
  const sdk::Options options(args, ddp_options());
  constexpr double kMostMb = 1 << 20;
  constexpr double kMb = 1 << 20;
  ReplicatedOptions parsed;
  parsed.bucket_bytes = static_cast<uint64_t>(options.number("bucket_cap_mb", 0, kMostMb) * kMb);
  parsed.first_bucket_bytes =
      static_cast<uint64_t>(options.number("first_bucket_cap_mb", 0, kMostMb) * kMb);
  parsed.overlap_comm = options.flag("overlap_comm");
  return parsed;
}

std::unique_ptr<sdk::Strategy> create_ddp(const strata_create_args_t& args) {
  return std::make_unique<Replicated>(args, parse(args));
}

// Its capabilities refuse every world but that of one rank.
std::unique_ptr<sdk::Strategy> create_single(const strata_create_args_t& args) {
  const sdk::Options none(args, {});
  return std::make_unique<Replicated>(args, ReplicatedOptions{});
}

strata_estimate_t estimate_ddp(const strata_create_args_t& args, const strata_model_t& model) {
  return Replicated::estimate(args, parse(args), model);
}

strata_estimate_t estimate_single(const strata_create_args_t& args, const strata_model_t& model) {
  const sdk::Options none(args, {});
  return Replicated::estimate(args, {}, model);
}

strata_capabilities_t capabilities(uint32_t max_world, const char* summary) {
  strata_capabilities_t can{};
  can.struct_size = sizeof(can);
  can.min_world = 1;
  can.max_world = max_world;
  can.flags = STRATA_CAN_NO_SYNC | STRATA_CAN_TIED | STRATA_CAN_FROZEN | STRATA_CAN_UNUSED |
              STRATA_CAN_RECOMPUTE | STRATA_CAN_INFERENCE;
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU) | STRATA_DEVICE_BIT(STRATA_DEVICE_CUDA);
  can.compute_dtypes = can.reduce_dtypes = can.accumulate_dtypes = sdk::kTrainedDtypes;
  can.summary = summary;
  return can;
}

const std::vector<sdk::StrategyInfo>& strategies() {
  static const std::vector<sdk::StrategyInfo> all = {
      {"single", capabilities(1, "one rank, no communication"), {}, create_single, estimate_single},
      {"ddp", capabilities(0, "whole copies, gradients all-reduced in buckets during backward"),
       ddp_options(), create_ddp, estimate_ddp},
  };
  return all;
}

}  // namespace
}  // namespace strata::ddp

STRATA_PLUGIN("strata.ddp", "0.1.0", strata::ddp::strategies)
