// Whether a strategy can do what a run needs: asked before step 0, answered in words.
#ifndef STRATA_PLUGIN_CAPABILITIES_H_
#define STRATA_PLUGIN_CAPABILITIES_H_

#include <cstdint>
#include <string>

#include "strata/abi/strategy.h"
#include "strata/base/status.h"

namespace strata::plugin {

// What a run will ask of its strategy.
struct StrategyNeeds {
  uint32_t world_size = 1;
  int32_t device = STRATA_DEVICE_CPU;
  int32_t compute_dtype = STRATA_DTYPE_F32;
  int32_t reduce_dtype = STRATA_DTYPE_F32;
  int32_t accumulate_dtype = STRATA_DTYPE_F32;
  bool accumulates = false;            // several micro-batches a step
  bool has_tied_units = false;         // a unit entered more than once
  bool has_frozen_parameters = false;  // parameters that are not trained
  bool may_miss_gradients = false;     // trainable parameters that a batch may not reach
  bool recomputes = false;             // activation checkpointing
  bool infers = false;                 // evaluation or generation
  bool needs_equal_replicas = false;   // norms and checkpoints at any step
};

// Returns kUnsupported with everything that is missing: what was asked, what is there, what to do.
Status check_capabilities(const std::string& strategy, const strata_capabilities_t& capabilities,
                          const StrategyNeeds& needs);

// "tied units, accumulation, recomputation, inference" for `strata plugins info`.
std::string capabilities_text(const strata_capabilities_t& capabilities);
std::string devices_text(uint64_t devices);  // "cpu, cuda"
// Of gradients on a rank: F32 for a strategy that says nothing.
uint64_t accumulate_dtypes(const strata_capabilities_t& capabilities);
std::string dtypes_text(uint64_t dtypes);  // "f32, bf16"

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_CAPABILITIES_H_
