// The C++ face of "strata.strategy/1": derive from Strategy, list your strategies in STRATA_PLUGIN,
// done.
//
// The glue (plugin_entry.h) turns virtual functions into table slots, catches everything that is
// thrown, writes the text into the host's error sink and returns the code. So inside a plugin,
// errors are exceptions of type sdk::Error.
#ifndef STRATA_SDK_STRATEGY_H_
#define STRATA_SDK_STRATEGY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/abi/strategy.h"

namespace strata::sdk {

class Communicator;

// A failing slot: the status code it returns and the text for the host's error sink.
class Error : public std::exception {
 public:
  Error(strata_status_t code, std::string message) : code_(code), message_(std::move(message)) {}
  strata_status_t code() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  strata_status_t code_;
  std::string message_;
};

// One function per slot of strata_strategy_1_t, with the same contract (see there). A function that
// cannot do what it should throws Error. Views and targets are returned by value; `struct_size`
// fields are filled by the glue.
class Strategy {
 public:
  virtual ~Strategy() = default;

  virtual strata_layout_t layout(const strata_unit_t& unit) = 0;
  virtual void attach(const strata_model_t& model) = 0;
  virtual strata_unit_view_t open_unit(uint32_t unit, int32_t intent) = 0;
  virtual void close_unit(uint32_t unit) = 0;

  virtual strata_unit_view_t before_forward(const strata_unit_context_t& context) = 0;
  virtual int32_t after_forward(const strata_unit_context_t& context) = 0;  // STRATA_UNIT_*
  virtual strata_unit_view_t before_backward(const strata_unit_context_t& context) = 0;
  virtual strata_gradient_target_t gradient_target(const strata_unit_context_t& context) = 0;
  virtual int32_t after_backward(const strata_unit_context_t& context) = 0;  // STRATA_UNIT_*
  virtual void end_backward(bool sync) = 0;

  virtual const std::vector<strata_partition_t>& partitions() = 0;
  virtual void before_step() = 0;
  virtual void after_step(bool updated) = 0;
  virtual void all_reduce_small(const strata_small_reduction_t& reduction) = 0;

  virtual void quiesce() = 0;
  virtual void abort(const char* reason) noexcept = 0;  // any thread
  virtual void detach() = 0;

  // The communicator over all ranks, for the table "strata.collectives/1"; null while there is
  // none.
  virtual Communicator* communicator() { return nullptr; }
};

// One option: its key, its default as text, and one sentence for help.
struct OptionInfo {
  const char* key;
  const char* default_value;
  const char* description;
};

// A name that users know from elsewhere: {"full_shard", "reshard_after_forward=true"}.
struct AliasInfo {
  const char* alias;
  const char* options;  // "key=value,key=value", or ""
};

// One strategy of a plugin.
struct StrategyInfo {
  const char* name;
  strata_capabilities_t capabilities;
  std::vector<OptionInfo> options;
  std::unique_ptr<Strategy> (*create)(const strata_create_args_t& args);
  strata_estimate_t (*estimate)(const strata_create_args_t& args, const strata_model_t& model);
  std::vector<AliasInfo> aliases = {};
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_STRATEGY_H_
