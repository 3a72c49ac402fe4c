// The slots of a micro-batch under the checked mode.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "strata/abi/host.h"
#include "strata/plugin/checked_instance.h"

namespace strata::plugin {
namespace {

constexpr const char* kOnceRule = "once per unit and pass, in the declared order";
constexpr const char* kReverseRule = "once per unit and backward, in the declared reverse order";
constexpr const char* kPairRule =
    "before_forward, after_forward; before_backward, gradient_target, after_backward";

template <typename T>
void copy_out(const T& from, T* to) {
  const uint32_t size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &from, std::min<size_t>(size, sizeof(T)));
  to->struct_size = size;
}

}  // namespace

CheckedInstance::Unit& CheckedInstance::unit_of(const char* slot,
                                                const strata_unit_context_t* context) {
  const Place at = place(slot);
  require_alive(at);
  if (open_unit_ != STRATA_NONE) {
    at.host_broke(fmt::format("was called while unit '{}' is open", units_[open_unit_].name),
                  "close_unit comes first");
  }
  if (state_ == State::kCreated) at.host_broke("was called before attach", "attach comes first");
  if (is_in_step_) at.host_broke("was called before after_step", "after_step comes first");
  check_context(at, *context, static_cast<uint32_t>(units_.size()));
  is_quiet_ = false;
  return units_[context->unit];
}

// ---- forward ----

strata_status_t CheckedInstance::before_forward(const strata_unit_context_t* context,
                                                strata_unit_view_t* out) {
  Unit& unit = unit_of("before_forward", context);
  const Place at = place("before_forward", unit);
  const bool is_recomputed = context->phase == STRATA_PHASE_RECOMPUTE;
  if (context->phase != STRATA_PHASE_FORWARD && context->phase != STRATA_PHASE_INFERENCE &&
      !is_recomputed) {
    at.host_broke(fmt::format("has phase {}", context->phase), "FORWARD, RECOMPUTE or INFERENCE");
  }
  // The first recomputation of a backward comes before any before_backward.
  const bool is_in_place = is_recomputed ? unit.was_in_forward && state_ != State::kBetweenSteps
                                         : state_ != State::kInBackward;
  if (!is_in_place) {
    at.host_broke(fmt::format("has phase {} in state {}", context->phase, state_name(state_)),
                  "RECOMPUTE inside backward, FORWARD and INFERENCE outside");
  }
  if (unit.is_in_forward || unit.is_in_backward || (is_recomputed && unit.was_in_backward)) {
    at.host_broke("enters a unit that is in use or done", kOnceRule);
  }
  if (!is_recomputed) {
    const bool is_inference = context->phase == STRATA_PHASE_INFERENCE;
    if (state_ == State::kInForward && is_inference != is_inference_) {
      at.host_broke("changes between FORWARD and INFERENCE inside a forward", kOnceRule);
    }
    const bool is_new_pass =
        state_ == State::kBetweenSteps || (is_inference && unit.first_entry <= forward_place_);
    if (is_new_pass) forward_place_ = -1;
    if (unit.first_entry <= forward_place_) at.host_broke("is out of order", kOnceRule);
    forward_place_ = unit.first_entry;
    is_inference_ = is_inference;
    micro_batch_sync_ = context->sync;
    state_ = State::kInForward;
  }
  Fenced<strata_unit_view_t> view;
  const strata_status_t status = finish(at, table_->before_forward(inner, context, &view.value));
  view.check(at);
  if (status != STRATA_OK) return status;
  take_view(at, unit, *context, view.value);
  unit.is_in_forward = true;
  if (context->phase == STRATA_PHASE_FORWARD) unit.was_in_forward = true;
  copy_out(view.value, out);
  return STRATA_OK;
}

strata_status_t CheckedInstance::after_forward(const strata_unit_context_t* context,
                                               int32_t* residency) {
  Unit& unit = unit_of("after_forward", context);
  const Place at = place("after_forward", unit);
  if (!unit.is_in_forward) at.host_broke("was called without before_forward", kPairRule);
  int32_t answer = 0;
  const strata_status_t status = table_->after_forward(inner, context, &answer);
  unit.is_in_forward = false;
  const strata_status_t result = end_of_unit(at, unit, status, answer, context->phase, residency);
  // Nothing but its last unit ends a forward that no backward follows.
  const bool is_any_open = std::any_of(units_.begin(), units_.end(),
                                       [](const Unit& other) { return other.is_in_forward; });
  if (result == STRATA_OK && is_inference_ && state_ == State::kInForward && !is_any_open) {
    state_ = State::kBetweenSteps;
  }
  return result;
}

// ---- backward ----

strata_status_t CheckedInstance::before_backward(const strata_unit_context_t* context,
                                                 strata_unit_view_t* out) {
  Unit& unit = unit_of("before_backward", context);
  const Place at = place("before_backward", unit);
  if (context->phase != STRATA_PHASE_BACKWARD) {
    at.host_broke(fmt::format("has phase {}", context->phase), "STRATA_PHASE_BACKWARD");
  }
  if (state_ != State::kInForward && state_ != State::kInBackward) {
    at.host_broke(fmt::format("was called in state {}", state_name(state_)),
                  "a backward follows its forward");
  }
  if (!unit.was_in_forward || unit.is_in_forward) {
    at.host_broke("was called for a unit whose forward is not done", kPairRule);
  }
  if (!unit.has_backward) {
    at.host_broke("was called for a frozen unit in front of everything that is trained",
                  "such a unit has no backward");
  }
  if (state_ == State::kInForward) backward_place_ = closed_place_ = INT64_MAX;
  if (unit.is_in_backward || unit.was_in_backward || unit.last_entry >= backward_place_) {
    at.host_broke("is out of order", kReverseRule);
  }
  backward_place_ = unit.last_entry;
  state_ = State::kInBackward;
  Fenced<strata_unit_view_t> view;
  const strata_status_t status = finish(at, table_->before_backward(inner, context, &view.value));
  view.check(at);
  if (status != STRATA_OK) return status;
  take_view(at, unit, *context, view.value);
  unit.is_in_backward = true;
  copy_out(view.value, out);
  return STRATA_OK;
}

strata_status_t CheckedInstance::gradient_target(const strata_unit_context_t* context,
                                                 strata_gradient_target_t* out) {
  Unit& unit = unit_of("gradient_target", context);
  const Place at = place("gradient_target", unit);
  if (!unit.is_in_backward || unit.has_target || !unit.is_trainable) {
    at.host_broke(!unit.is_in_backward ? "was called without before_backward"
                  : unit.has_target    ? "was called twice"
                                       : "was called for a frozen unit",
                  "once per trainable unit and backward, behind its before_backward");
  }
  Fenced<strata_gradient_target_t> target;
  const strata_status_t status = finish(at, table_->gradient_target(inner, context, &target.value));
  target.check(at);
  if (status != STRATA_OK) return status;
  check_target(at, target.value, unit.numel, unit.gradient_dtype, context->micro_batch);
  const Range range{static_cast<const char*>(target.value.data),
                    unit.numel * dtype_bytes(target.value.dtype)};
  for (const Unit& other : units_) {
    if (other.is_bound && range.overlaps(other.view)) {
      at.plugin_broke(fmt::format("answered memory that holds unit '{}'", other.name),
                      "a gradient target is apart from every unit that is bound");
    }
    if (other.has_target && range.overlaps(other.target)) {
      at.plugin_broke(fmt::format("answered the gradient target of unit '{}'", other.name),
                      "a gradient target is the host's until after_backward");
    }
  }
  unit.target = range;
  unit.has_target = true;
  copy_out(target.value, out);
  return STRATA_OK;
}

strata_status_t CheckedInstance::after_backward(const strata_unit_context_t* context,
                                                int32_t* residency) {
  Unit& unit = unit_of("after_backward", context);
  const Place at = place("after_backward", unit);
  if (!unit.is_in_backward || (unit.is_trainable && !unit.has_target)) {
    at.host_broke(!unit.is_in_backward ? "was called without before_backward"
                                       : "was called without gradient_target",
                  kPairRule);
  }
  if (unit.first_entry >= closed_place_) at.host_broke("is out of order", kReverseRule);
  closed_place_ = unit.first_entry;
  int32_t answer = 0;
  const strata_status_t status = table_->after_backward(inner, context, &answer);
  unit.is_in_backward = unit.has_target = false;
  unit.was_in_backward = true;
  return end_of_unit(at, unit, status, answer, STRATA_PHASE_BACKWARD, residency);
}

strata_status_t CheckedInstance::end_backward(int32_t sync) {
  const Place at = place("end_backward");
  const bool is_all_frozen = std::none_of(units_.begin(), units_.end(),
                                          [](const Unit& unit) { return unit.has_backward; });
  require(at, is_all_frozen ? State::kInForward : State::kInBackward,
          "behind the backward of a micro-batch");
  if (sync != micro_batch_sync_) {
    at.host_broke(fmt::format("has sync = {}, the contexts of this micro-batch had {}", sync,
                              micro_batch_sync_),
                  "context.sync says what end_backward will say");
  }
  for (const Unit& unit : units_) {
    if (unit.is_in_backward ||
        (unit.has_backward && unit.was_in_forward && !unit.was_in_backward)) {
      place("end_backward", unit)
          .host_broke("was called before after_backward of this unit",
                      "after_backward once per unit and backward, whatever got a gradient");
    }
  }
  const strata_status_t status = finish(at, table_->end_backward(inner, sync));
  if (status != STRATA_OK) return status;
  for (Unit& unit : units_) unit.was_in_forward = unit.was_in_backward = false;
  is_synced_ = sync == 1;
  state_ = State::kBetweenSteps;
  return STRATA_OK;
}

// ---- memory ----

// Whether the unit's memory is where it may be, and holds what it held in forward.
void CheckedInstance::take_view(const Place& at, Unit& unit, const strata_unit_context_t& context,
                                const strata_unit_view_t& view) {
  check_view(at, view, unit.numel, unit.dtype);
  const Range range{static_cast<const char*>(view.data), unit.numel * dtype_bytes(unit.dtype)};
  if (unit.is_bound && unit.view.first != range.first) {
    at.plugin_broke("moved a unit that was kept", "a view stays valid and unmoved until released");
  }
  for (const Unit& other : units_) {
    if (&other != &unit && other.is_bound && range.overlaps(other.view)) {
      at.plugin_broke(
          fmt::format("answered memory that holds unit '{}', which is not released", other.name),
          "a view stays valid until its unit is released");
    }
    if (other.has_target && range.overlaps(other.target)) {
      at.plugin_broke(fmt::format("answered the gradient target of unit '{}'", other.name),
                      "a gradient target is the host's until after_backward");
    }
  }
  unit.view = range;
  unit.is_bound = true;
  compare_with_forward(at, unit, context, view);
}

void CheckedInstance::compare_with_forward(const Place& at, Unit& unit,
                                           const strata_unit_context_t& context,
                                           const strata_unit_view_t& view) {
  if (!is_on_cpu_ || unit.numel == 0) return;
  if (view.ready != nullptr) {
    const auto* streams =
        static_cast<const strata_host_streams_1_t*>(offer_.get_table(STRATA_HOST_STREAMS_1));
    if (streams == nullptr) return;
    const std::string what = fmt::format("unit '{}' in {}", unit.name, at.slot);
    const strata_status_t status = streams->synchronize(host_, view.ready, 0, what.c_str());
    if (status != STRATA_OK) return;  // the host will meet it again when it waits
  }
  const uint64_t hash = content_hash(view.data, unit.view.bytes);
  if (unit.has_hash && hash != unit.forward_hash) {
    at.plugin_broke("handed out other values than before, with no after_step or write in between",
                    "a unit holds its parameters whenever it is handed out");
  }
  unit.forward_hash = hash;
  unit.has_hash = true;
}

strata_status_t CheckedInstance::end_of_unit(const Place& at, Unit& unit, strata_status_t status,
                                             int32_t residency, int32_t phase, int32_t* out) {
  status = finish(at, status);
  if (status != STRATA_OK) return status;
  check_residency(at, residency, phase);
  if (residency == STRATA_UNIT_RELEASED) unit.is_bound = false;
  *out = residency;
  return STRATA_OK;
}

}  // namespace strata::plugin
