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
  allocate_units();
  if (shape_.shard_group_size > 1) allocate_rings();
  gradients_ = SlicedGradients({host_, name(), /*is_sliced=*/true, options_.sync_each_batch},
                               model_, group(), mesh_);
  make_partitions();
}

void FullSharding::allocate_units() {
  const uint32_t flags = STRATA_MEMORY_ZEROED | (is_alone() ? 0U : STRATA_MEMORY_COLLECTIVE);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const UnitInfo& info = model_.unit(u);
    const char* label = info.name.c_str();
    const uint64_t numel = shard_numel(u);
    units_[u].shard = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS,
                             numel * element_bytes(info.compute_dtype), flags, label);
    units_[u].master = Master(host_, units_[u].shard.data(), info.compute_dtype, numel, label);
  }
}

void FullSharding::allocate_rings() {
  plan_ = SlotPlan(model_, options_);
  parameter_slots_ =
      SlotRing(host_, model_.count(), plan_.shared_slots, plan_.shared_bytes, STRATA_TAG_GATHERED,
               STRATA_MEMORY_COLLECTIVE, "slot for gathered units");
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const UnitInfo& unit = model_.unit(u);
    if (!plan_.has_own_slot[u]) continue;
    parameter_slots_.add_own(u, unit.parameter_bytes(), unit.name.c_str());
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
      partition.master = units_[u].master.data() + i * slice.numel;
      if (unit.is_trainable) {
        partition.gradient =
            gradients_.slice(u) + i * slice.numel * element_bytes(unit.accumulate_dtype);
      }
      partition.gradient_dtype = unit.accumulate_dtype;
      partition.place = STRATA_PLACE_DEVICE;
      partition.trainable = unit.is_trainable ? 1 : 0;
      partition.master_is_parameter = units_[u].master.is_parameter() ? 1 : 0;
      partition.replicas = shape_.groups();
      partition.replica = mesh_.group_index();
      partition.gradient_ready = gradients_.ready(u);
      partitions_.push_back(partition);
    }
  }
}

// ---- whole units, one at a time ----

strata_unit_view_t FullSharding::open_unit(uint32_t unit, int32_t intent) {
  opened_.require_none(model_);
  group().check();
  const bool is_here = is_whole(unit);
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  view.data =
      is_here ? units_[unit].master.data() : opened_.allocate(host_, model_.unit(unit).numel);
  if (!is_here && intent == STRATA_INTENT_READ) {
    const Span span(host_, name(), "open_unit/all_gather");
    slices_are_written_.hold(group().stream());
    mesh_.gather(units_[unit].master.data(), view.data, model_.unit(unit).numel, STRATA_DTYPE_F32);
    group().synchronize("the gather of an opened unit");
  }
  opened_.set(unit, intent);
  return view;
}

void FullSharding::close_unit(uint32_t unit) {
  opened_.require(unit);
  if (opened_.is_written()) {
    const Span span(host_, name(), "close_unit/copy");
    group().hold_compute();  // Note [Slices are read in place]
    store_opened(unit);
    slices_are_written_.record(compute());
    slices_are_written_.synchronize("the store of an opened unit");
    parameter_slots_.release(unit, compute());  // what was gathered before is old
    group().check();
  }
  opened_.clear();
}

// Masters from the opened unit, then parameters from masters.
void FullSharding::store_opened(uint32_t unit) {
  for (uint32_t i = 0; i < shape_.pieces() && !is_whole(unit); ++i) {
    const Slice piece = shape_.piece(model_.unit(unit).numel, mesh_.place(), i);
    check(services().kernels->copy(host_, compute(), units_[unit].master.data() + i * piece.numel,
                                   opened_.memory() + piece.offset, piece.numel * sizeof(float)),
          "storing a shard");
  }
  units_[unit].master.store(compute());
}

// ---- gathering ----

void FullSharding::gather_into(SlotRing::Slot& slot, uint32_t unit) {
  slot.released.hold(group().stream());
  slices_are_written_.hold(group().stream());
  const UnitInfo& info = model_.unit(unit);
  mesh_.gather(units_[unit].shard.data(), slot.memory.data(), info.numel, info.compute_dtype);
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
  view.dtype = model_.unit(unit).compute_dtype;
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
  const bool is_kept = plan_.has_own_slot[context.unit] ||
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
  model_.unit(context.unit);
  return gradients_.target(context);
}

int32_t FullSharding::after_backward(const strata_unit_context_t& context) {
  const bool is_here = is_whole(context.unit);
  units_[context.unit].is_done = true;
  gradients_.after_backward(context);
  if (!is_here) parameter_slots_.release(context.unit, compute());
  if (!is_here && options_.backward_prefetch == BackwardPrefetch::kPost) {
    prefetch(context.next_unit);
  }
  group().check();
  return is_here ? STRATA_UNIT_KEPT : STRATA_UNIT_RELEASED;
}

void FullSharding::end_backward(bool sync) {
  const Span span(host_, name(), "end_backward");
  is_backward_over_ = true;
  if (!sync) forget_done();  // no update comes here
  gradients_.end_backward(sync);
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
  if (!updated) return;
  for (uint32_t u = 0; u < model_.count(); ++u) {
    if (model_.unit(u).is_trainable) units_[u].master.store(compute());
  }
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
  gradients_ = {};
  units_.clear();
  opened_.clear();
  is_backward_over_ = false;
  plan_ = {};
  model_ = {};
}

}  // namespace strata::sdk
