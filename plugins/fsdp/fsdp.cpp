#include "fsdp.h"

#include <algorithm>
#include <string>

#include "strata/sdk/slices.h"

namespace strata::fsdp {

using sdk::Buffer;
using sdk::Event;
using sdk::Span;

namespace {

constexpr uint32_t kGradientSlots = 2;  // one is written while the other is reduced

// Whether the unit keeps its slot from first to last use: it is at an end of the model, where the
// passes meet, or it is entered more than once.
bool is_at_end(const sdk::ModelTable& model, uint32_t unit, uint32_t last_entry) {
  const sdk::UnitInfo& info = model.unit(unit);
  return info.first_entry == 0 || info.last_entry == last_entry ||
         info.first_entry != info.last_entry;
}

uint32_t last_entry_of(const sdk::ModelTable& model) {
  uint32_t last = 0;
  for (const sdk::UnitInfo& unit : model.units()) last = std::max(last, unit.last_entry);
  return last;
}

}  // namespace

Fsdp::Fsdp(const strata_create_args_t& args, const FsdpOptions& options)
    : host_(args.host), rank_(args.world->rank), world_(args.world->size), options_(options) {}

// ---- attach ----

strata_layout_t Fsdp::layout(const strata_unit_t&) { return sdk::sliced_layout(world_); }

void Fsdp::attach(const strata_model_t& model) {
  model_ = sdk::ModelTable(model, sdk::kAlignment * world_);
  group_.emplace(host_, "fsdp", rank_, world_, options_.overlap_comm);
  group_->agree(model_.text());
  units_.clear();
  units_.resize(model_.count());
  computed_ = Event(host_);
  last_reduced_ = Event(host_);
  choose_own_slots();
  allocate_units();
  if (!is_alone()) allocate_rings();
  make_partitions();
}

void Fsdp::choose_own_slots() {
  const uint32_t last = last_entry_of(model_);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    units_[u].has_own_slot = !options_.reshard_after_forward || is_at_end(model_, u, last);
  }
}

void Fsdp::allocate_units() {
  const uint32_t flags = STRATA_MEMORY_ZEROED | (is_alone() ? 0U : STRATA_MEMORY_COLLECTIVE);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const char* name = model_.unit(u).name.c_str();
    units_[u].shard =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS, slice_bytes(u), flags, name);
    if (!model_.unit(u).is_trainable) continue;
    units_[u].gradient_shard =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS, slice_bytes(u), flags, name);
    units_[u].gradient_ready = Event(host_);
  }
}

void Fsdp::allocate_rings() {
  const uint32_t last = last_entry_of(model_);
  uint64_t largest_shared = 0;
  uint64_t largest_gradient = 0;
  for (uint32_t u = 0; u < model_.count(); ++u) {
    if (!units_[u].has_own_slot) largest_shared = std::max(largest_shared, model_.unit(u).bytes());
    if (model_.unit(u).is_trainable && !is_at_end(model_, u, last)) {
      largest_gradient = std::max(largest_gradient, model_.unit(u).bytes());
    }
  }
  parameter_slots_ =
      sdk::SlotRing(host_, model_.count(), options_.limit_all_gathers, largest_shared,
                    STRATA_TAG_GATHERED, STRATA_MEMORY_COLLECTIVE, "slot for gathered units");
  gradient_slots_ =
      sdk::SlotRing(host_, model_.count(), kGradientSlots, largest_gradient, STRATA_TAG_STAGING,
                    STRATA_MEMORY_COLLECTIVE, "slot for gradients");
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const char* name = model_.unit(u).name.c_str();
    if (units_[u].has_own_slot) parameter_slots_.add_own(u, model_.unit(u).bytes(), name);
    if (model_.unit(u).is_trainable && is_at_end(model_, u, last)) {
      gradient_slots_.add_own(u, model_.unit(u).bytes(), name);
    }
  }
}

void Fsdp::make_partitions() {
  partitions_.clear();
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::Slice slice = sdk::slice_of(model_.unit(u).numel, rank_, world_);
    strata_partition_t partition{};
    partition.unit = u;
    partition.offset = slice.offset;
    partition.numel = slice.numel;
    partition.master = units_[u].shard.data();
    partition.gradient = units_[u].gradient_shard.data();
    partition.gradient_dtype = STRATA_DTYPE_F32;
    partition.place = STRATA_PLACE_DEVICE;
    partition.trainable = model_.unit(u).is_trainable ? 1 : 0;
    partition.master_is_parameter = 1;
    partition.replicas = 1;
    partition.gradient_ready = is_alone() ? nullptr : units_[u].gradient_ready.get();
    partitions_.push_back(partition);
  }
}

// ---- whole units, one at a time ----

strata_unit_view_t Fsdp::open_unit(uint32_t unit, int32_t intent) {
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  opened_unit_ = unit;
  opened_intent_ = intent;
  if (is_alone()) {
    view.data = units_[unit].shard.data();
    return view;
  }
  opened_ = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, model_.unit(unit).bytes(),
                   STRATA_MEMORY_COLLECTIVE, "an opened unit");
  if (intent == STRATA_INTENT_READ) {
    const Span span(host_, "fsdp/open_unit/all_gather");
    computed_.record(compute());
    computed_.hold(group_->stream());
    group_->communicator().all_gather(units_[unit].shard.data(), opened_.data(),
                                      model_.unit(unit).numel / world_, STRATA_DTYPE_F32,
                                      group_->stream());
    group_->synchronize("the gather of an opened unit");
  }
  view.data = opened_.data();
  return view;
}

void Fsdp::close_unit(uint32_t unit) {
  if (!is_alone() && opened_intent_ == STRATA_INTENT_WRITE) {
    const uint64_t bytes = slice_bytes(unit);
    sdk::check(sdk::services().kernels->copy(host_, compute(), units_[unit].shard.data(),
                                             opened_.chars() + rank_ * bytes, bytes),
               "storing a slice");
    computed_.record(compute());
    computed_.synchronize("the store of an opened unit");
    release(unit);  // what was gathered before is old
  }
  opened_ = Buffer();
  opened_unit_ = STRATA_NONE;
}

// ---- gathering ----

bool Fsdp::gather(uint32_t unit, bool is_needed) {
  if (parameter_slots_.find(unit) != nullptr) return true;
  sdk::SlotRing::Slot* slot = parameter_slots_.take(unit);
  if (slot == nullptr && is_needed) {
    // A wrong hint: the unit that was gathered for it has not been asked for.
    for (const uint32_t holder : parameter_slots_.holders()) {
      if (units_[holder].has_own_slot || units_[holder].is_handed_out) continue;
      release(holder);
      slot = parameter_slots_.take(unit);
      break;
    }
  }
  if (slot == nullptr) {
    if (!is_needed) return false;
    throw sdk::Error(STRATA_E_STATE, "unit '" + model_.unit(unit).name +
                                         "' finds no free slot of " +
                                         std::to_string(options_.limit_all_gathers) +
                                         ". HINT: a larger limit_all_gathers");
  }
  slot->released.hold(group_->stream());
  computed_.record(compute());  // the update of the slices
  computed_.hold(group_->stream());
  group_->communicator().all_gather(units_[unit].shard.data(), slot->memory.data(),
                                    model_.unit(unit).numel / world_, STRATA_DTYPE_F32,
                                    group_->stream());
  slot->ready.record(group_->stream());
  return true;
}

void Fsdp::prefetch(uint32_t unit) {
  if (unit == STRATA_NONE || unit >= model_.count()) return;
  const Span span(host_, "fsdp/prefetch/all_gather");
  gather(unit, false);
}

strata_unit_view_t Fsdp::gathered_view(uint32_t unit) {
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  if (is_alone()) {
    view.data = units_[unit].shard.data();
    return view;
  }
  gather(unit, true);
  units_[unit].is_handed_out = true;
  const sdk::SlotRing::Slot* slot = parameter_slots_.find(unit);
  view.data = slot->memory.data();
  view.ready = slot->ready.get();
  return view;
}

void Fsdp::release(uint32_t unit) {
  if (is_alone()) return;
  units_[unit].is_handed_out = false;
  parameter_slots_.release(unit, compute());
}

// ---- one micro-batch ----

strata_unit_view_t Fsdp::before_forward(const strata_unit_context_t& context) {
  const Span span(host_, "fsdp/before_forward/all_gather");
  const strata_unit_view_t view = gathered_view(context.unit);
  const bool is_recompute = context.phase == STRATA_PHASE_RECOMPUTE;
  if (!is_alone() && options_.forward_prefetch && !is_recompute) prefetch(context.next_unit);
  return view;
}

int32_t Fsdp::after_forward(const strata_unit_context_t& context) {
  const bool is_kept = is_alone() || units_[context.unit].has_own_slot ||
                       context.phase == STRATA_PHASE_RECOMPUTE || context.backward_begins_here != 0;
  if (is_kept) return STRATA_UNIT_KEPT;
  release(context.unit);
  return STRATA_UNIT_RELEASED;
}

strata_unit_view_t Fsdp::before_backward(const strata_unit_context_t& context) {
  const Span span(host_, "fsdp/before_backward/all_gather");
  const strata_unit_view_t view = gathered_view(context.unit);
  if (!is_alone() && options_.backward_prefetch == BackwardPrefetch::kPre) {
    prefetch(context.next_unit);
  }
  return view;
}

strata_gradient_target_t Fsdp::gradient_target(const strata_unit_context_t& context) {
  Unit& unit = units_[context.unit];
  if (context.micro_batch == 0) unit.has_kept = unit.has_reduced = false;  // a new window
  strata_gradient_target_t target{};
  target.dtype = STRATA_DTYPE_F32;
  target.mode = unit.has_kept ? STRATA_GRADIENT_ADD : STRATA_GRADIENT_WRITE;
  if (is_alone()) {
    target.data = unit.gradient_shard.data();
    return target;
  }
  const bool is_kept = !options_.sync_each_batch && (context.sync == 0 || unit.has_kept);
  if (is_kept) {
    if (unit.kept_gradients.data() == nullptr) {
      unit.kept_gradients =
          Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS,
                 model_.unit(context.unit).bytes(), STRATA_MEMORY_COLLECTIVE, "kept gradients");
    }
    target.data = unit.kept_gradients.data();
    return target;
  }
  sdk::SlotRing::Slot* slot = gradient_slots_.take(context.unit);
  if (slot == nullptr) {
    throw sdk::Error(STRATA_E_INTERNAL,
                     "no gradient slot is free for unit '" + model_.unit(context.unit).name + "'");
  }
  target.data = slot->memory.data();
  target.mode = STRATA_GRADIENT_WRITE;
  target.ready = slot->ready.get();  // the reduction of the unit that had it before
  return target;
}

int32_t Fsdp::after_backward(const strata_unit_context_t& context) {
  const uint32_t u = context.unit;
  Unit& unit = units_[u];
  if (model_.unit(u).is_trainable) {
    if (is_alone() || (context.sync == 0 && !options_.sync_each_batch)) {
      unit.has_kept = true;
    } else {
      const Span span(host_, "fsdp/after_backward/reduce_scatter");
      reduce(u);
    }
  }
  if (is_alone()) return STRATA_UNIT_KEPT;
  release(u);
  if (options_.backward_prefetch == BackwardPrefetch::kPost) prefetch(context.next_unit);
  return STRATA_UNIT_RELEASED;
}

void Fsdp::reduce(uint32_t u) {
  Unit& unit = units_[u];
  sdk::SlotRing::Slot* slot = gradient_slots_.find(u);
  const void* from = slot != nullptr ? slot->memory.data() : unit.kept_gradients.data();
  computed_.record(compute());
  computed_.hold(group_->stream());
  if (unit.has_reduced) {
    reduce_and_add(u, from);
  } else {
    group_->communicator().reduce_scatter(from, unit.gradient_shard.data(),
                                          model_.unit(u).numel / world_, STRATA_DTYPE_F32,
                                          group_->stream());
  }
  unit.has_reduced = options_.sync_each_batch;
  unit.gradient_ready.record(group_->stream());
  last_reduced_.record(group_->stream());
  if (slot == nullptr) return;
  slot->ready.record(group_->stream());
  gradient_slots_.release(u, compute());
}

// For sync_each_batch: a later micro-batch's sum goes through staging.
void Fsdp::reduce_and_add(uint32_t u, const void* from) {
  const uint64_t numel = model_.unit(u).numel / world_;
  if (added_.bytes() < slice_bytes(u)) {
    group_->synchronize("the last use of staging");
    uint64_t largest = 0;
    for (uint32_t other = 0; other < model_.count(); ++other) {
      largest = std::max(largest, slice_bytes(other));
    }
    added_ = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, largest,
                    STRATA_MEMORY_COLLECTIVE, "staging of sync_each_batch");
  }
  group_->communicator().reduce_scatter(from, added_.data(), numel, STRATA_DTYPE_F32,
                                        group_->stream());
  sdk::check(sdk::services().kernels->add(host_, group_->stream(), units_[u].gradient_shard.data(),
                                          STRATA_DTYPE_F32, added_.data(), STRATA_DTYPE_F32, numel),
             "adding a micro-batch's gradients");
}

void Fsdp::end_backward(bool sync) {
  const Span span(host_, "fsdp/end_backward");
  if (sync) {
    for (Unit& unit : units_) unit.has_kept = unit.has_reduced = false;
  }
  if (is_alone()) return;
  last_reduced_.hold(compute());
  group_->check();
}

// ---- the step ----

void Fsdp::after_step(bool updated) {
  if (!updated || is_alone()) return;
  for (const uint32_t unit : parameter_slots_.holders()) release(unit);  // old weights
}

void Fsdp::all_reduce_small(const strata_small_reduction_t& reduction) {
  group_->all_reduce_small(reduction);
}

// ---- the end ----

void Fsdp::quiesce() {
  if (group_.has_value()) group_->synchronize("fsdp/quiesce");
}

void Fsdp::abort(const char*) noexcept {
  if (group_.has_value()) group_->abort();
}

void Fsdp::detach() {
  partitions_.clear();
  parameter_slots_ = {};
  gradient_slots_ = {};
  units_.clear();
  added_ = Buffer();
  opened_ = Buffer();
  computed_ = Event();
  last_reduced_ = Event();
  group_.reset();
}

sdk::Communicator* Fsdp::communicator() {
  return group_.has_value() ? group_->communicator_or_null() : nullptr;
}

}  // namespace strata::fsdp
