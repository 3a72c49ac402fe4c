// One strategy at work on this rank, as a C++ object: one method per slot of strata_strategy_1_t,
// each with the slot's contract (abi/strategy.h).
//
// A failing slot becomes a Status with its code and the text from the host's error sink; failing
// without a text is named as the plugin's bug. `struct_size` of outputs is set here.
#ifndef STRATA_PLUGIN_STRATEGY_INSTANCE_H_
#define STRATA_PLUGIN_STRATEGY_INSTANCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "strata/abi/collectives.h"
#include "strata/abi/strategy.h"
#include "strata/base/status.h"
#include "strata/base/world.h"
#include "strata/plugin/library.h"
#include "strata/plugin/registry.h"

namespace strata::plugin {

class StrategyInstance {
 public:
  // Makes an instance for this rank. With `is_checked` every call goes through wrap_checked().
  // `host` is lent until the instance ends.
  static Result<StrategyInstance> create(const ResolvedStrategy& strategy, const World& world,
                                         strata_device_t device, strata_host_t* host,
                                         bool is_checked = false);
  // Bytes and traffic of a model, without an instance.
  static Result<strata_estimate_t> estimate(const ResolvedStrategy& strategy, const World& world,
                                            strata_device_t device, const strata_model_t& model);

  StrategyInstance(StrategyInstance&& other) noexcept;
  StrategyInstance& operator=(StrategyInstance&& other) noexcept;
  ~StrategyInstance();  // destroys: communicates with nobody

  const std::string& name() const { return name_; }
  const PluginLibrary& library() const { return *library_; }

  Status layout(const strata_unit_t& unit, strata_layout_t* out);
  Status attach(const strata_model_t& model);
  Status open_unit(uint32_t unit, int32_t intent, strata_unit_view_t* out);
  Status close_unit(uint32_t unit);

  Status before_forward(const strata_unit_context_t& context, strata_unit_view_t* out);
  Status after_forward(const strata_unit_context_t& context, int32_t* residency);
  Status before_backward(const strata_unit_context_t& context, strata_unit_view_t* out);
  Status gradient_target(const strata_unit_context_t& context, strata_gradient_target_t* out);
  Status after_backward(const strata_unit_context_t& context, int32_t* residency);
  Status end_backward(int32_t sync);

  uint32_t partition_count();
  Status partition(uint32_t index, strata_partition_t* out);
  Status before_step();
  Status after_step(int32_t updated);
  Status all_reduce_small(const strata_small_reduction_t& reduction);

  Status quiesce();
  void abort(const char* reason);  // any thread
  Status detach();

  // The optional table "strata.collectives/1"; kUnsupported if the plugin has none.
  Status all_reduce(const strata_collective_args_t& args);
  Status all_gather(const strata_collective_args_t& args);
  Status reduce_scatter(const strata_collective_args_t& args);
  Status broadcast(const strata_collective_args_t& args);
  Status barrier();

 private:
  StrategyInstance(std::shared_ptr<PluginLibrary> library, std::string name,
                   const strata_strategy_1_t* table, strata_strategy_t* self);
  Status to_status(strata_status_t status, const char* slot) const;
  template <typename... Parameters, typename... Arguments>
  Status call(const char* slot, strata_status_t (*function)(strata_strategy_t*, Parameters...),
              Arguments... arguments);
  Result<const strata_collectives_1_t*> collectives() const;

  std::shared_ptr<PluginLibrary> library_;
  std::string name_;
  const strata_strategy_1_t* table_ = nullptr;
  strata_strategy_t* self_ = nullptr;
};

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_STRATEGY_INSTANCE_H_
