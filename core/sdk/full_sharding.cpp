#include "strata/sdk/full_sharding.h"

#include <algorithm>
#include <string>

#include "strata/sdk/slices.h"

namespace strata::sdk {

FullSharding::FullSharding(const strata_create_args_t& args, const FullShardingOptions& options)
    : host_(args.host),
      options_(options),
      shape_(options.shape(args.world->size)),
      member_(args, args.name, options.overlap_comm) {}

// ---- attach ----

strata_layout_t FullSharding::layout(const strata_unit_t&) { return sliced_layout(world()); }

void FullSharding::attach(const strata_model_t& model) {
  try {
    model_ = member_.join(model, options_.text());
    mesh_ = ShardMesh(shape_, group());
    group().together([&] { allocate(); });
  } catch (...) {
    detach();
    throw;
  }
}

void FullSharding::allocate() {
  units_.resize(model_.count());
  slices_are_written_ = Event(host_);
  computed_ = Event(host_);
  last_reduced_ = Event(host_);
  allocate_units();
  if (shape_.shard_group_size > 1) allocate_rings();
  make_partitions();
}

void FullSharding::allocate_units() {
  const uint32_t flags = STRATA_MEMORY_ZEROED | (is_alone() ? 0U : STRATA_MEMORY_COLLECTIVE);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const char* name = model_.unit(u).name.c_str();
    units_[u].shard =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS, shard_bytes(u), flags, name);
    if (!model_.unit(u).is_trainable) continue;
    units_[u].gradient_shard =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS, shard_bytes(u), flags, name);
    units_[u].gradient_ready = Event(host_);
  }
}

void FullSharding::allocate_rings() {
  plan_ = SlotPlan(model_, options_);
  parameter_slots_ =
      SlotRing(host_, model_.count(), plan_.shared_parameter_slots, plan_.shared_parameter_bytes,
               STRATA_TAG_GATHERED, STRATA_MEMORY_COLLECTIVE, "slot for gathered units");
  gradient_slots_ =
      SlotRing(host_, model_.count(), plan_.shared_gradient_slots, plan_.shared_gradient_bytes,
               STRATA_TAG_STAGING, STRATA_MEMORY_COLLECTIVE, "slot for gradients");
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const UnitInfo& unit = model_.unit(u);
    if (plan_.has_own_parameter_slot[u]) {
      parameter_slots_.add_own(u, unit.bytes(), unit.name.c_str());
    }
    if (plan_.has_own_gradient_slot[u]) {
      gradient_slots_.add_own(u, unit.bytes(), unit.name.c_str());
    }
  }
}

void FullSharding::make_partitions() {
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const UnitInfo& unit = model_.unit(u);
    if (unit.numel == 0) continue;
    for (uint32_t i = 0; i < shape_.pieces(); ++i) {
      const Slice slice = shape_.piece(unit.numel, mesh_.place(), i);
      strata_partition_t partition{};
      partition.unit = u;
      partition.offset = slice.offset;
      partition.numel = slice.numel;
      partition.master = units_[u].shard.floats() + i * slice.numel;
      if (unit.is_trainable) {
        partition.gradient = units_[u].gradient_shard.floats() + i * slice.numel;
      }
      partition.gradient_dtype = STRATA_DTYPE_F32;
      partition.place = STRATA_PLACE_DEVICE;
      partition.trainable = unit.is_trainable ? 1 : 0;
      partition.master_is_parameter = 1;
      partition.replicas = shape_.groups();
      partition.replica = mesh_.group_index();
      partition.gradient_ready = is_alone() ? nullptr : units_[u].gradient_ready.get();
      partitions_.push_back(partition);
    }
  }
}

// ---- whole units, one at a time ----

strata_unit_view_t FullSharding::open_unit(uint32_t unit, int32_t intent) {
  opened_unit_.require_none(model_);
  group().check();
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  if (is_whole(unit)) {
    view.data = units_[unit].shard.data();
  } else {
    Buffer whole(host_, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, model_.unit(unit).bytes(),
                 STRATA_MEMORY_COLLECTIVE, "an opened unit");
    if (intent == STRATA_INTENT_READ) {
      const Span span(host_, name(), "open_unit/all_gather");
      slices_are_written_.hold(group().stream());
      // Kept here until the gather is over, also when it fails.
      opened_ = std::move(whole);
      mesh_.gather(units_[unit].shard.data(), opened_.data(), model_.unit(unit).numel);
      group().synchronize("the gather of an opened unit");
    } else {
      opened_ = std::move(whole);
    }
    view.data = opened_.data();
  }
  opened_unit_.set(unit);
  opened_intent_ = intent;
  return view;
}

void FullSharding::close_unit(uint32_t unit) {
  opened_unit_.require(unit);
  if (!is_whole(unit) && opened_intent_ == STRATA_INTENT_WRITE) {
    const Span span(host_, name(), "close_unit/copy");
    group().hold_compute();  // Note [Slices are read in place]
    store_opened(unit);
    slices_are_written_.record(compute());
    slices_are_written_.synchronize("the store of an opened unit");
    parameter_slots_.release(unit, compute());  // what was gathered before is old
    group().check();
  }
  opened_ = Buffer();
  opened_unit_.clear();
}

void FullSharding::store_opened(uint32_t unit) {
  for (uint32_t i = 0; i < shape_.pieces(); ++i) {
    const Slice piece = shape_.piece(model_.unit(unit).numel, mesh_.place(), i);
    check(services().kernels->copy(host_, compute(), units_[unit].shard.floats() + i * piece.numel,
                                   opened_.floats() + piece.offset, piece.numel * sizeof(float)),
          "storing a shard");
  }
}

// ---- gathering ----

void FullSharding::gather_into(SlotRing::Slot& slot, uint32_t unit) {
  slot.released.hold(group().stream());
  slices_are_written_.hold(group().stream());
  mesh_.gather(units_[unit].shard.data(), slot.memory.data(), model_.unit(unit).numel);
  slot.ready.record(group().stream());
}

// All that decides here is the same on every rank, so all start the same gathers.
void FullSharding::prefetch(uint32_t unit) {
  if (unit >= model_.count() || is_whole(unit) || units_[unit].is_done) return;
  if (parameter_slots_.find(unit) != nullptr) return;
  SlotRing::Slot* slot = parameter_slots_.take(unit);
  if (slot == nullptr) return;
  const Span span(host_, name(), "prefetch/all_gather");
  gather_into(*slot, unit);
}

strata_unit_view_t FullSharding::lend(uint32_t unit, const char* span_name) {
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  if (is_whole(unit)) {
    view.data = units_[unit].shard.data();
    return view;
  }
  if (parameter_slots_.find(unit) == nullptr) {
    const Span span(host_, name(), span_name);
    SlotRing::Slot* slot = parameter_slots_.take_or_evict(unit);
    if (slot == nullptr) {
      throw Error(STRATA_E_STATE, "unit '" + model_.unit(unit).name +
                                      "' finds no free slot: limit_all_gathers = " +
                                      std::to_string(options_.limit_all_gathers) +
                                      " and as many units are in use. HINT: a larger "
                                      "limit_all_gathers");
    }
    gather_into(*slot, unit);
  }
  const SlotRing::Slot* slot = parameter_slots_.lend(unit);
  view.data = slot->memory.data();
  view.ready = slot->ready.get();
  return view;
}

// ---- one micro-batch ----

strata_unit_view_t FullSharding::before_forward(const strata_unit_context_t& context) {
  if (context.phase == STRATA_PHASE_FORWARD && is_backward_over_) forget_done();
  const strata_unit_view_t view = lend(context.unit, "before_forward/all_gather");
  const bool is_recompute = context.phase == STRATA_PHASE_RECOMPUTE;
  if (options_.forward_prefetch && !is_recompute) prefetch(context.next_unit);
  return view;
}

int32_t FullSharding::after_forward(const strata_unit_context_t& context) {
  if (is_whole(context.unit)) return STRATA_UNIT_KEPT;
  group().check();  // its gather may have failed, and a forward without backward asks nowhere else
  const bool is_kept = plan_.has_own_parameter_slot[context.unit] ||
                       context.phase == STRATA_PHASE_RECOMPUTE || context.backward_begins_here != 0;
  if (is_kept) return STRATA_UNIT_KEPT;
  parameter_slots_.release(context.unit, compute());
  return STRATA_UNIT_RELEASED;
}

strata_unit_view_t FullSharding::before_backward(const strata_unit_context_t& context) {
  const strata_unit_view_t view = lend(context.unit, "before_backward/all_gather");
  if (options_.backward_prefetch == BackwardPrefetch::kPre) prefetch(context.next_unit);
  return view;
}

strata_gradient_target_t FullSharding::gradient_target(const strata_unit_context_t& context) {
  const UnitInfo& info = model_.unit(context.unit);
  Unit& unit = units_[context.unit];
  if (context.micro_batch == 0) unit.has_kept = unit.has_reduced = false;  // a new window
  strata_gradient_target_t target{};
  target.dtype = STRATA_DTYPE_F32;
  target.mode = unit.has_kept ? STRATA_GRADIENT_ADD : STRATA_GRADIENT_WRITE;
  if (is_whole(context.unit)) {
    target.data = unit.gradient_shard.data();
    return target;
  }
  const bool is_kept = !options_.sync_each_batch && (context.sync == 0 || unit.has_kept);
  if (is_kept) {
    if (unit.kept_gradients.data() == nullptr) {
      unit.kept_gradients =
          Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS, info.bytes(),
                 STRATA_MEMORY_COLLECTIVE, ("kept gradients of " + info.name).c_str());
    }
    target.data = unit.kept_gradients.data();
    return target;
  }
  SlotRing::Slot* slot = gradient_slots_.take(context.unit);
  if (slot == nullptr) {
    throw Error(STRATA_E_INTERNAL, "no gradient slot is free for unit '" + info.name + "'");
  }
  target.data = slot->memory.data();
  target.ready = slot->ready.get();  // the reduction of the unit that had it before
  return target;
}

int32_t FullSharding::after_backward(const strata_unit_context_t& context) {
  const bool is_trainable = model_.unit(context.unit).is_trainable;
  Unit& unit = units_[context.unit];
  unit.is_done = true;
  const bool is_summed_here = !options_.sync_each_batch || is_whole(context.unit);
  if (is_trainable && (is_alone() || (context.sync == 0 && is_summed_here))) {
    unit.has_kept = true;
  } else if (is_trainable) {
    reduce(context.unit);
  }
  if (is_whole(context.unit)) return STRATA_UNIT_KEPT;
  parameter_slots_.release(context.unit, compute());
  if (options_.backward_prefetch == BackwardPrefetch::kPost) prefetch(context.next_unit);
  group().check();
  return STRATA_UNIT_RELEASED;
}

void FullSharding::reduce(uint32_t u) {
  const Span span(host_, name(), "after_backward/reduce");
  Unit& unit = units_[u];
  SlotRing::Slot* slot = gradient_slots_.find(u);
  const void* from = slot != nullptr ? slot->memory.data()
                     : is_whole(u)   ? unit.gradient_shard.data()
                                     : unit.kept_gradients.data();
  computed_.record(compute());
  computed_.hold(group().stream());
  if (unit.has_reduced) {
    reduce_and_add(u, from);
  } else {
    mesh_.reduce(from, unit.gradient_shard.data(), model_.unit(u).numel);
  }
  unit.has_reduced = options_.sync_each_batch && !is_whole(u);
  unit.gradient_ready.record(group().stream());
  last_reduced_.record(group().stream());
  if (slot == nullptr) return;
  slot->ready.record(group().stream());
  gradient_slots_.release(u, compute());
}

// For sync_each_batch: a later micro-batch's sum goes through staging.
void FullSharding::reduce_and_add(uint32_t u, const void* from) {
  if (added_.data() == nullptr) {
    uint64_t largest = 0;
    for (uint32_t other = 0; other < model_.count(); ++other) {
      if (model_.unit(other).is_trainable) largest = std::max(largest, shard_bytes(other));
    }
    added_ = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, largest,
                    STRATA_MEMORY_COLLECTIVE, "staging of sync_each_batch");
  }
  mesh_.reduce(from, added_.data(), model_.unit(u).numel);
  check(services().kernels->add(host_, group().stream(), units_[u].gradient_shard.data(),
                                STRATA_DTYPE_F32, added_.data(), STRATA_DTYPE_F32, shard_numel(u)),
        "adding a micro-batch's gradients");
}

void FullSharding::end_backward(bool sync) {
  const Span span(host_, name(), "end_backward");
  is_backward_over_ = true;
  if (sync) {
    for (Unit& unit : units_) unit.has_kept = unit.has_reduced = false;
  } else {
    forget_done();  // no update comes here
  }
  last_reduced_.hold(compute());
  group().check();
}

void FullSharding::forget_done() {
  is_backward_over_ = false;
  for (Unit& unit : units_) unit.is_done = false;
}

// ---- the step ----

void FullSharding::before_step() { group().hold_compute(); }  // Note [Slices are read in place]

void FullSharding::after_step(bool updated) {
  forget_done();
  if (!updated || is_alone()) return;
  slices_are_written_.record(compute());
  for (const uint32_t unit : parameter_slots_.holders()) {
    parameter_slots_.release(unit, compute());  // old weights
  }
}

// ---- the end ----

void FullSharding::detach() {
  mesh_ = {};
  member_.leave();
  partitions_.clear();
  parameter_slots_ = {};
  gradient_slots_ = {};
  units_.clear();
  added_ = Buffer();
  opened_ = Buffer();
  opened_unit_.clear();
  is_backward_over_ = false;
  plan_ = {};
  model_ = {};
}

}  // namespace strata::sdk
