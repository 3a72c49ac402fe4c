#include "strata/plugin/checked_instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "strata/abi/host.h"

namespace strata::plugin {
namespace {

constexpr const char* kLifeRule =
    "create, layout, attach; then open_unit, or forward, backward, end_backward; then before_step, "
    "after_step; at the end quiesce, detach, destroy";
constexpr const char* kLostRule =
    "behind STRATA_E_TIMEOUT, _ABORTED, _PEER_LOST or a failed call of a step only abort() and "
    "destroy() are legal";

// An array whose stride is the host's struct_size.
template <typename T>
const T& element(const T* first, uint32_t index) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) +
                                     size_t{index} * first->struct_size);
}

template <typename T>
void copy_out(const T& from, T* to) {
  const uint32_t size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &from, std::min<size_t>(size, sizeof(T)));
  to->struct_size = size;
}

bool is_loss(strata_status_t status) {
  return status == STRATA_E_TIMEOUT || status == STRATA_E_ABORTED || status == STRATA_E_PEER_LOST;
}

}  // namespace

CheckedInstance::CheckedInstance(const strata_strategy_1_t* table, const HostOffer& offer,
                                 const strata_create_args_t& args)
    : table_(table),
      offer_(offer),
      host_(args.host),
      name_(args.name),
      world_size_(args.world->size),
      is_on_cpu_(args.device.type == STRATA_DEVICE_CPU) {}

// ---- words and states ----

const char* CheckedInstance::state_name(State state) {
  switch (state) {
    case State::kCreated: return "[created]";
    case State::kBetweenSteps: return "[between-steps]";
    case State::kInForward: return "[in-forward]";
    case State::kInBackward: return "[in-backward]";
    case State::kBroken: return "[broken]";
  }
  return "";
}

Place CheckedInstance::place(const char* slot) const { return {name_, slot, ""}; }

Place CheckedInstance::place(const char* slot, const Unit& unit) const {
  return {name_, slot, fmt::format("unit '{}'", unit.name)};
}

// Behind an abort() by another thread the caller cannot know yet: that one goes to the plugin.
void CheckedInstance::require_alive(const Place& at) const {
  if (state_ == State::kBroken) at.host_broke("was called behind a failure", kLostRule);
}

void CheckedInstance::require(const Place& at, State state, const char* rule) {
  require_alive(at);
  if (state_ != state) {
    at.host_broke(fmt::format("was called in state {}, it belongs into {}", state_name(state_),
                              state_name(state)),
                  rule);
  }
  if (open_unit_ != STRATA_NONE && std::strcmp(at.slot, "close_unit") != 0) {
    at.host_broke(fmt::format("was called while unit '{}' is open", units_[open_unit_].name),
                  "close_unit comes first");
  }
  is_quiet_ = false;
}

void CheckedInstance::mark_broken() {
  if (state_ != State::kCreated) state_ = State::kBroken;
}

// Behind every call of the plugin: a known status, a text with every failure.
strata_status_t CheckedInstance::finish(const Place& at, strata_status_t status) {
  if (status == STRATA_OK) return status;
  if (status < 0 || status > STRATA_E_INTERNAL) {
    at.plugin_broke(fmt::format("returned status {}", status), "STRATA_OK or STRATA_E_*");
  }
  const std::string text = offer_.errors->take();
  if (text.empty()) {
    at.plugin_broke(fmt::format("returned status {} and wrote no text", status),
                    "a failing return has a text in the host's error sink");
  }
  const auto* log = static_cast<const strata_host_log_1_t*>(offer_.get_table(STRATA_HOST_LOG_1));
  log->fail(host_, status, text.c_str());
  if (is_loss(status) || state_ == State::kInForward || state_ == State::kInBackward) mark_broken();
  return status;
}

// ---- the model ----

strata_status_t CheckedInstance::layout(const strata_unit_t* unit, strata_layout_t* out) {
  const Place at{name_, "layout",
                 unit != nullptr ? fmt::format("unit '{}'", unit->name) : "no unit"};
  require(at, State::kCreated, kLifeRule);
  Fenced<strata_layout_t> first, second;
  const strata_status_t status = finish(at, table_->layout(inner, unit, &first.value));
  first.check(at);
  if (status != STRATA_OK) return status;
  check_layout(at, first.value);
  if (table_->layout(inner, unit, &second.value) != STRATA_OK ||
      second.value.parameter_alignment != first.value.parameter_alignment ||
      second.value.unit_multiple != first.value.unit_multiple) {
    at.plugin_broke("answered something else when asked again",
                    "a layout depends on the unit's sizes, the options and the world only");
  }
  copy_out(first.value, out);
  return STRATA_OK;
}

void CheckedInstance::describe_units(const strata_model_t& model) {
  units_.clear();
  for (uint32_t u = 0; u < model.unit_count; ++u) {
    const strata_unit_t& from = element(model.units, u);
    Unit unit;
    unit.name = from.name;
    unit.numel = from.numel;
    unit.dtype = from.compute_dtype;
    const bool is_said =
        STRATA_HAS_FIELD(strata_unit_t, &from, accumulate_dtype) && from.accumulate_dtype != 0;
    unit.gradient_dtype = is_said ? from.accumulate_dtype : STRATA_DTYPE_F32;
    check_unit(place("attach", unit), unit.dtype, from.reduce_dtype, unit.gradient_dtype);
    unit.is_trainable = from.trainable != 0;
    units_.push_back(std::move(unit));
  }
  std::vector<bool> is_seen(units_.size());
  bool is_behind_trained = false;
  for (uint32_t i = 0; i < model.order_count; ++i) {
    const uint32_t u = model.order[i];
    if (u >= units_.size()) {
      place("attach").host_broke(fmt::format("has unit {} of {} in the order", u, units_.size()),
                                 "the order names units of the model");
    }
    if (!is_seen[u]) units_[u].first_entry = i;
    units_[u].last_entry = i;
    is_seen[u] = true;
    Unit& unit = units_[u];
    unit.has_backward = unit.has_backward || unit.is_trainable || is_behind_trained;
    is_behind_trained = is_behind_trained || unit.is_trainable;
  }
}

strata_status_t CheckedInstance::attach(const strata_model_t* model) {
  const Place at = place("attach");
  require(at, State::kCreated, kLifeRule);
  describe_units(*model);
  strata_status_t status = finish(at, table_->attach(inner, model));
  if (status != STRATA_OK) return status;
  state_ = State::kBetweenSteps;
  status = read_partitions(place("partition"));
  return status == STRATA_OK ? check_coverage(place("partition")) : status;
}

// All partitions of this rank: ordered, inside their units, apart from each other.
strata_status_t CheckedInstance::read_partitions(const Place& at) {
  partitions_.clear();
  const uint32_t count = table_->partition_count(inner);
  for (uint32_t i = 0; i < count; ++i) {
    Fenced<strata_partition_t> out;
    const strata_status_t status = finish(at, table_->partition(inner, i, &out.value));
    out.check(at);
    if (status != STRATA_OK) return status;
    const strata_partition_t& p = out.value;
    if (p.unit >= units_.size()) {
      at.plugin_broke(fmt::format("answered unit {} of {}", p.unit, units_.size()),
                      "an index of an attached unit");
    }
    const Unit& unit = units_[p.unit];
    check_partition(place("partition", unit), p,
                    {unit.numel, unit.is_trainable, unit.dtype, unit.gradient_dtype}, world_size_);
    if (!partitions_.empty()) {
      const strata_partition_t& last = partitions_.back();
      const bool is_ordered =
          p.unit > last.unit || (p.unit == last.unit && p.offset >= last.offset + last.numel);
      if (!is_ordered) {
        place("partition", unit)
            .plugin_broke(
                fmt::format("answered unit {}, offset {} behind unit {}, [{}, {})", p.unit,
                            p.offset, last.unit, last.offset, last.offset + last.numel),
                "by rising unit, then offset, without overlap");
      }
    }
    partitions_.push_back(p);
  }
  return STRATA_OK;
}

// Together the partitions of all ranks cover every unit, each element `replicas` times.
strata_status_t CheckedInstance::check_coverage(const Place& at) {
  std::vector<double> covered(units_.size());
  for (const strata_partition_t& p : partitions_) {
    covered[p.unit] += static_cast<double>(p.numel) / p.replicas;
  }
  for (size_t begin = 0; begin < covered.size(); begin += 4096) {
    strata_small_reduction_t sum{};
    sum.struct_size = sizeof(sum);
    sum.dtype = STRATA_DTYPE_F64;
    sum.op = STRATA_REDUCE_SUM;
    sum.count = static_cast<uint32_t>(std::min<size_t>(4096, covered.size() - begin));
    sum.values = covered.data() + begin;
    const strata_status_t status =
        finish(place("all_reduce_small"), table_->all_reduce_small(inner, &sum));
    if (status != STRATA_OK) return status;
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto numel = static_cast<double>(units_[u].numel);
    if (covered[u] > numel + 0.5 || covered[u] < numel - 0.5) {
      place(at.slot, units_[u])
          .plugin_broke(fmt::format("covers {} of {} elements over all ranks", covered[u], numel),
                        "the partitions of all ranks cover every unit, each element `replicas` "
                        "times");
    }
  }
  return STRATA_OK;
}

CheckedInstance::Unit& CheckedInstance::unit_at(const Place& at, uint32_t index) {
  if (index >= units_.size()) {
    at.host_broke(fmt::format("names unit {} of {}", index, units_.size()),
                  "an index of an attached unit");
  }
  return units_[index];
}

strata_status_t CheckedInstance::open_unit(uint32_t index, int32_t intent,
                                           strata_unit_view_t* out) {
  require(place("open_unit"), State::kBetweenSteps, kLifeRule);
  Unit& unit = unit_at(place("open_unit"), index);
  const Place at = place("open_unit", unit);
  if (intent != STRATA_INTENT_READ && intent != STRATA_INTENT_WRITE) {
    at.host_broke(fmt::format("has intent {}", intent), "STRATA_INTENT_READ or _WRITE");
  }
  Fenced<strata_unit_view_t> view;
  const strata_status_t status = finish(at, table_->open_unit(inner, index, intent, &view.value));
  view.check(at);
  if (status != STRATA_OK) return status;
  check_view(at, view.value, unit.numel, STRATA_DTYPE_F32);
  open_unit_ = index;
  if (intent == STRATA_INTENT_WRITE) unit.has_hash = false;
  copy_out(view.value, out);
  return STRATA_OK;
}

strata_status_t CheckedInstance::close_unit(uint32_t index) {
  require(place("close_unit"), State::kBetweenSteps, kLifeRule);
  const Place at = place("close_unit", unit_at(place("close_unit"), index));
  if (index != open_unit_) at.host_broke("closes a unit that is not open", "open_unit comes first");
  open_unit_ = STRATA_NONE;
  return finish(at, table_->close_unit(inner, index));
}

// ---- the step and the end ----

uint32_t CheckedInstance::partition_count() {
  const Place at = place("partition_count");
  require(at, State::kBetweenSteps, kLifeRule);
  const uint32_t count = table_->partition_count(inner);
  if (count != partitions_.size()) {
    at.plugin_broke(fmt::format("answered {}, and {} in attach", count, partitions_.size()),
                    "partitions are the same from attach() to detach()");
  }
  return count;
}

strata_status_t CheckedInstance::partition(uint32_t index, strata_partition_t* out) {
  const Place at = place("partition");
  require(at, State::kBetweenSteps, kLifeRule);
  if (index >= partitions_.size()) {
    at.host_broke(fmt::format("asks for {} of {}", index, partitions_.size()),
                  "an index below partition_count()");
  }
  Fenced<strata_partition_t> answer;
  const strata_status_t status = finish(at, table_->partition(inner, index, &answer.value));
  answer.check(at);
  if (status != STRATA_OK) return status;
  if (std::memcmp(&answer.value, &partitions_[index], sizeof(strata_partition_t)) != 0) {
    place("partition", units_[partitions_[index].unit])
        .plugin_broke(fmt::format("answered something else for index {} than in attach", index),
                      "partitions and their addresses are the same from attach() to detach()");
  }
  copy_out(answer.value, out);
  return STRATA_OK;
}

strata_status_t CheckedInstance::before_step() {
  const Place at = place("before_step");
  require(at, State::kBetweenSteps, kLifeRule);
  if (is_in_step_ || !is_synced_) {
    at.host_broke(is_in_step_ ? "was called twice" : "was called without reduced gradients",
                  "behind end_backward(1), once, and after_step behind it");
  }
  is_in_step_ = true;
  return finish(at, table_->before_step(inner));
}

strata_status_t CheckedInstance::after_step(int32_t updated) {
  const Place at = place("after_step");
  require(at, State::kBetweenSteps, kLifeRule);
  if (!is_in_step_) at.host_broke("was called without before_step", "before_step comes first");
  if (updated != 0 && updated != 1) {
    at.host_broke(fmt::format("has updated = {}", updated), "1 or 0");
  }
  is_in_step_ = false;
  is_synced_ = false;
  for (Unit& unit : units_) unit.has_hash = false;
  return finish(at, table_->after_step(inner, updated));
}

strata_status_t CheckedInstance::all_reduce_small(const strata_small_reduction_t* reduction) {
  const Place at = place("all_reduce_small");
  require(at, State::kBetweenSteps, kLifeRule);
  check_small_reduction(at, reduction);
  // F64 and I64 have 8 bytes both.
  const size_t bytes = size_t{reduction->count} * 8;
  std::vector<char> before(world_size_ == 1 ? bytes : 0);
  if (!before.empty()) std::memcpy(before.data(), reduction->values, before.size());
  const strata_status_t status = finish(at, table_->all_reduce_small(inner, reduction));
  if (status == STRATA_OK && !before.empty() &&
      std::memcmp(before.data(), reduction->values, before.size()) != 0) {
    at.plugin_broke("changed the numbers of a world of one rank",
                    "the sum, least or largest over one rank is the rank's own");
  }
  return status;
}

strata_status_t CheckedInstance::quiesce() {
  const Place at = place("quiesce");
  require(at, State::kBetweenSteps, kLifeRule);
  const strata_status_t status = finish(at, table_->quiesce(inner));
  is_quiet_ = status == STRATA_OK;
  return status;
}

void CheckedInstance::abort(const char* reason) { table_->abort(inner, reason); }

strata_status_t CheckedInstance::detach() {
  const Place at = place("detach");
  const bool was_quiet = is_quiet_;
  require(at, State::kBetweenSteps, kLifeRule);
  if (!was_quiet) at.host_broke("was called without quiesce", "quiesce comes first");
  const strata_status_t status = finish(at, table_->detach(inner));
  if (status != STRATA_OK) return status;
  units_.clear();
  partitions_.clear();
  is_synced_ = is_in_step_ = false;
  state_ = State::kCreated;
  return STRATA_OK;
}

}  // namespace strata::plugin
