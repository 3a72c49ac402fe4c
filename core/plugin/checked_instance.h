// One instance under the checked mode: remembers what was called and answered, and holds each call
// against it. Internal to core/plugin; see checked.h.
//
// Functions throw BrokenRule; their return value is the plugin's own status.
#ifndef STRATA_PLUGIN_CHECKED_INSTANCE_H_
#define STRATA_PLUGIN_CHECKED_INSTANCE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"
#include "strata/plugin/checked_rules.h"
#include "strata/plugin/error_sink.h"

namespace strata::plugin {

class CheckedInstance {
 public:
  CheckedInstance(const strata_strategy_1_t* table, const HostOffer& offer,
                  const strata_create_args_t& args);

  // The plugin's own instance.
  strata_strategy_t* inner = nullptr;

  const std::string& strategy() const { return name_; }
  strata_host_t* host() const { return host_; }
  const HostOffer& offer() const { return offer_; }
  const strata_strategy_1_t& table() const { return *table_; }
  void mark_broken();

  // False if another thread is inside a slot of this instance.
  bool enter() { return !is_busy_.exchange(true); }
  void leave() { is_busy_.store(false); }

  strata_status_t layout(const strata_unit_t* unit, strata_layout_t* out);
  strata_status_t attach(const strata_model_t* model);
  strata_status_t open_unit(uint32_t unit, int32_t intent, strata_unit_view_t* out);
  strata_status_t close_unit(uint32_t unit);
  strata_status_t before_forward(const strata_unit_context_t* context, strata_unit_view_t* out);
  strata_status_t after_forward(const strata_unit_context_t* context, int32_t* residency);
  strata_status_t before_backward(const strata_unit_context_t* context, strata_unit_view_t* out);
  strata_status_t gradient_target(const strata_unit_context_t* context,
                                  strata_gradient_target_t* out);
  strata_status_t after_backward(const strata_unit_context_t* context, int32_t* residency);
  strata_status_t end_backward(int32_t sync);
  uint32_t partition_count();
  strata_status_t partition(uint32_t index, strata_partition_t* out);
  strata_status_t before_step();
  strata_status_t after_step(int32_t updated);
  strata_status_t all_reduce_small(const strata_small_reduction_t* reduction);
  strata_status_t quiesce();
  void abort(const char* reason);  // any thread
  strata_status_t detach();

 private:
  enum class State { kCreated, kBetweenSteps, kInForward, kInBackward, kBroken };

  // What is known of one unit. The two flags of a micro-batch are reset by end_backward.
  struct Unit {
    std::string name;
    uint64_t numel = 0;
    int32_t dtype = STRATA_DTYPE_F32;           // what it computes in
    int32_t gradient_dtype = STRATA_DTYPE_F32;  // what its gradients are kept in
    bool is_trainable = false;
    bool has_backward = false;  // false: frozen, in front of everything that is trained
    uint32_t first_entry = 0;   // place in the declared order
    uint32_t last_entry = 0;

    bool is_in_forward = false;   // between before_forward and after_forward
    bool is_in_backward = false;  // between before_backward and after_backward
    bool was_in_forward = false;
    bool was_in_backward = false;
    bool has_target = false;
    bool is_bound = false;  // handed out and not released since
    Range view;
    Range target;
    uint64_t forward_hash = 0;
    bool has_hash = false;
  };

  static const char* state_name(State state);
  Place place(const char* slot) const;
  Place place(const char* slot, const Unit& unit) const;
  void require(const Place& at, State state, const char* rule);
  void require_alive(const Place& at) const;
  void describe_units(const strata_model_t& model);
  Unit& unit_of(const char* slot, const strata_unit_context_t* context);
  Unit& unit_at(const Place& at, uint32_t index);
  void take_view(const Place& at, Unit& unit, const strata_unit_context_t& context,
                 const strata_unit_view_t& view);
  void compare_with_forward(const Place& at, Unit& unit, const strata_unit_context_t& context,
                            const strata_unit_view_t& view);
  strata_status_t end_of_unit(const Place& at, Unit& unit, strata_status_t status,
                              int32_t residency, int32_t phase, int32_t* out);
  strata_status_t read_partitions(const Place& at);
  strata_status_t check_coverage(const Place& at);
  strata_status_t finish(const Place& at, strata_status_t status);

  const strata_strategy_1_t* table_;
  HostOffer offer_;
  strata_host_t* host_;
  std::string name_;
  uint32_t world_size_;
  bool is_on_cpu_;

  std::atomic<bool> is_busy_{false};
  State state_ = State::kCreated;
  bool is_inference_ = false;
  bool is_synced_ = false;      // the last end_backward had sync = 1
  bool is_quiet_ = false;       // quiesce was the last call
  bool is_in_step_ = false;     // between before_step and after_step
  int64_t forward_place_ = -1;  // declared place of the unit begun last in this pass
  int64_t backward_place_ = -1;
  int64_t closed_place_ = -1;
  int32_t micro_batch_sync_ = 0;
  uint32_t open_unit_ = STRATA_NONE;
  std::vector<Unit> units_;
  std::vector<strata_partition_t> partitions_;
};

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_CHECKED_INSTANCE_H_
