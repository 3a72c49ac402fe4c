#include "strata/plugin/capabilities.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

#include "strata/base/text.h"

namespace strata::plugin {
namespace {

struct Word {
  uint64_t bit;
  const char* text;
};

constexpr Word kDevices[] = {{STRATA_DEVICE_BIT(STRATA_DEVICE_CPU), "cpu"},
                             {STRATA_DEVICE_BIT(STRATA_DEVICE_CUDA), "cuda"},
                             {STRATA_DEVICE_BIT(STRATA_DEVICE_ROCM), "rocm"}};
constexpr Word kDtypes[] = {{STRATA_DTYPE_BIT(STRATA_DTYPE_F32), "f32"},
                            {STRATA_DTYPE_BIT(STRATA_DTYPE_BF16), "bf16"},
                            {STRATA_DTYPE_BIT(STRATA_DTYPE_F16), "f16"},
                            {STRATA_DTYPE_BIT(STRATA_DTYPE_F64), "f64"}};
constexpr Word kFlags[] = {{STRATA_CAN_NO_SYNC, "accumulation without communication"},
                           {STRATA_CAN_SYNC_EACH_BATCH, "accumulation with communication"},
                           {STRATA_CAN_TIED, "tied units"},
                           {STRATA_CAN_FROZEN, "frozen parameters"},
                           {STRATA_CAN_UNUSED, "parameters without a gradient"},
                           {STRATA_CAN_RECOMPUTE, "activation checkpointing"},
                           {STRATA_CAN_INFERENCE, "inference"},
                           {STRATA_REPLICAS_MAY_DIFFER, "replicas that differ between steps"}};

template <size_t N>
std::string words(uint64_t bits, const Word (&table)[N]) {
  std::vector<std::string> out;
  for (const Word& word : table) {
    if ((bits & word.bit) != 0) out.emplace_back(word.text);
  }
  return out.empty() ? "nothing" : text::join(out);
}

uint64_t bit(int32_t value) { return value >= 0 && value < 64 ? uint64_t{1} << value : 0; }

}  // namespace

std::string devices_text(uint64_t devices) { return words(devices, kDevices); }
std::string dtypes_text(uint64_t dtypes) { return words(dtypes, kDtypes); }
std::string capabilities_text(const strata_capabilities_t& capabilities) {
  return words(capabilities.flags, kFlags);
}

uint64_t accumulate_dtypes(const strata_capabilities_t& capabilities) {
  const bool is_said = STRATA_HAS_FIELD(strata_capabilities_t, &capabilities, accumulate_dtypes) &&
                       capabilities.accumulate_dtypes != 0;
  return is_said ? capabilities.accumulate_dtypes : STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
}

Status check_capabilities(const std::string& strategy, const strata_capabilities_t& can,
                          const StrategyNeeds& needs) {
  std::vector<std::string> faults;
  const auto ask = [&](bool is_met, std::string text) {
    if (!is_met) faults.push_back(std::move(text));
  };
  ask(needs.world_size >= can.min_world,
      fmt::format("{} ranks are asked for, it needs at least {} (HINT: --devices {})",
                  needs.world_size, can.min_world, can.min_world));
  ask(can.max_world == 0 || needs.world_size <= can.max_world,
      fmt::format("{} ranks are asked for, it works with at most {} (HINT: --devices {}, or a "
                  "strategy for several ranks)",
                  needs.world_size, can.max_world, can.max_world));
  ask((can.devices & bit(needs.device)) != 0,
      fmt::format("device {} is asked for, it has {} (HINT: --accelerator)",
                  words(bit(needs.device), kDevices), devices_text(can.devices)));
  ask((can.compute_dtypes & bit(needs.compute_dtype)) != 0,
      fmt::format("computing in {} is asked for, it has {} (HINT: --precision)",
                  words(bit(needs.compute_dtype), kDtypes), dtypes_text(can.compute_dtypes)));
  ask((can.reduce_dtypes & bit(needs.reduce_dtype)) != 0,
      fmt::format("reducing in {} is asked for, it has {} (HINT: reduce_dtype or --precision)",
                  words(bit(needs.reduce_dtype), kDtypes), dtypes_text(can.reduce_dtypes)));
  ask((accumulate_dtypes(can) & bit(needs.accumulate_dtype)) != 0,
      fmt::format("gradients in {} are asked for, it has {} (HINT: --grad-accum-dtype)",
                  words(bit(needs.accumulate_dtype), kDtypes),
                  dtypes_text(accumulate_dtypes(can))));
  const auto flag = [&](bool is_needed, uint64_t bits, const char* what, const char* hint) {
    ask(!is_needed || (can.flags & bits) != 0,
        fmt::format("the run needs {}, which it cannot do (HINT: {})", what, hint));
  };
  flag(needs.accumulates, STRATA_CAN_NO_SYNC | STRATA_CAN_SYNC_EACH_BATCH, "accumulation",
       "--gradient-accumulation-steps 1");
  flag(needs.has_tied_units, STRATA_CAN_TIED, "units that are entered more than once",
       "a model without tied weights");
  flag(needs.has_frozen_parameters, STRATA_CAN_FROZEN, "parameters that are not trained",
       "train all parameters");
  flag(needs.may_miss_gradients, STRATA_CAN_UNUSED, "parameters that may get no gradient",
       "a model that uses all its parameters in every batch");
  flag(needs.recomputes, STRATA_CAN_RECOMPUTE, "activation checkpointing",
       "switch activation checkpointing off");
  flag(needs.infers, STRATA_CAN_INFERENCE, "forward without backward", "train without evaluation");
  ask(!needs.needs_equal_replicas || (can.flags & STRATA_REPLICAS_MAY_DIFFER) == 0,
      "its replicas may differ between synchronisations, and the run needs them equal at every "
      "step (HINT: clip and save at synchronisations only)");
  if (faults.empty()) return {};
  return unsupported(
      fmt::format("strategy '{}' cannot do this run: {}", strategy, text::join(faults, "; ")));
}

}  // namespace strata::plugin
