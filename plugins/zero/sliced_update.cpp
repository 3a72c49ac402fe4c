#include "sliced_update.h"

#include <algorithm>

#include "strata/sdk/slices.h"

namespace strata::zero {

using sdk::Buffer;
using sdk::Event;
using sdk::SlotRing;
using sdk::Span;

std::string SlicedUpdateOptions::text() const {
  return std::string("option sync_each_batch ") + (sync_each_batch ? "true" : "false") +
         "\noption overlap_comm " + (overlap_comm ? "true" : "false") + "\n";
}

SlicedUpdate::SlicedUpdate(const strata_create_args_t& args, const SlicedUpdateOptions& options)
    : host_(args.host), options_(options), member_(args, args.name, options.overlap_comm) {}

// ---- attach ----

strata_layout_t SlicedUpdate::layout(const strata_unit_t&) { return sdk::sliced_layout(world()); }

void SlicedUpdate::attach(const strata_model_t& model) {
  try {
    model_ = member_.join(model, options_.text());
    group().together([&] { allocate(); });
  } catch (...) {
    detach();
    throw;
  }
}

void SlicedUpdate::allocate() {
  units_.resize(model_.count());
  computed_ = Event(host_);
  last_reduced_ = Event(host_);
  forward_order_ = model_.backward_order();
  std::reverse(forward_order_.begin(), forward_order_.end());
  const uint32_t flags = STRATA_MEMORY_ZEROED | (is_alone() ? 0U : STRATA_MEMORY_COLLECTIVE);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    const char* label = info.name.c_str();
    units_[u].parameters =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS, info.bytes(), flags, label);
    if (!info.is_trainable) continue;
    units_[u].gathered = Event(host_);
    units_[u].gradient_ready = Event(host_);
    if (slices_gradients()) {
      units_[u].gradient_slice = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS,
                                        info.bytes() / world(), flags, label);
    } else {
      allocate_gradients(u);
    }
  }
  if (slices_gradients()) allocate_slots();
  make_partitions();
}

void SlicedUpdate::allocate_gradients(uint32_t unit) {
  const sdk::UnitInfo& info = model_.unit(unit);
  const uint32_t flags = STRATA_MEMORY_ZEROED | (is_alone() ? 0U : STRATA_MEMORY_COLLECTIVE);
  units_[unit].gradients = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS, info.bytes(),
                                  flags, ("gradients of " + info.name).c_str());
}

void SlicedUpdate::allocate_slots() {
  const sdk::SlotPlan plan(model_, {});
  gradient_slots_ =
      SlotRing(host_, model_.count(), plan.shared_gradient_slots, plan.shared_gradient_bytes,
               STRATA_TAG_STAGING, STRATA_MEMORY_COLLECTIVE, "slot for gradients");
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    if (plan.has_own_gradient_slot[u]) gradient_slots_.add_own(u, info.bytes(), info.name.c_str());
  }
}

// Where this rank's slice of the reduced gradients lies; null for a unit that is not trained.
float* SlicedUpdate::reduced(uint32_t unit) const {
  if (!model_.unit(unit).is_trainable) return nullptr;
  if (slices_gradients()) return units_[unit].gradient_slice.floats();
  return units_[unit].gradients.floats() + slice(unit).offset;
}

void SlicedUpdate::make_partitions() {
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    if (info.numel == 0) continue;
    strata_partition_t partition{};
    partition.unit = u;
    partition.offset = slice(u).offset;
    partition.numel = slice(u).numel;
    partition.master = units_[u].parameters.floats() + partition.offset;
    partition.gradient = reduced(u);
    partition.gradient_dtype = STRATA_DTYPE_F32;
    partition.place = STRATA_PLACE_DEVICE;
    partition.trainable = info.is_trainable ? 1 : 0;
    partition.master_is_parameter = 1;
    partition.replicas = 1;
    partition.gradient_ready = is_alone() ? nullptr : units_[u].gradient_ready.get();
    partitions_.push_back(partition);
  }
}

strata_unit_view_t SlicedUpdate::view(uint32_t unit) const {
  model_.unit(unit);
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  view.data = units_[unit].parameters.data();
  view.ready = units_[unit].gathered.get();
  return view;
}

// Every rank writes the same bytes into its own copy, so nothing needs to be sent.
strata_unit_view_t SlicedUpdate::open_unit(uint32_t unit, int32_t) {
  opened_unit_.require_none(model_);
  group().synchronize("what after_step began");
  strata_unit_view_t opened = view(unit);
  opened.ready = nullptr;
  opened_unit_.set(unit);
  return opened;
}

void SlicedUpdate::close_unit(uint32_t unit) {
  opened_unit_.require(unit);
  opened_unit_.clear();
}

// ---- one micro-batch ----

strata_unit_view_t SlicedUpdate::before_forward(const strata_unit_context_t& context) {
  return view(context.unit);
}

// A gather may have failed, and a forward without backward asks nowhere else.
int32_t SlicedUpdate::after_forward(const strata_unit_context_t&) {
  group().check();
  return STRATA_UNIT_KEPT;
}

strata_unit_view_t SlicedUpdate::before_backward(const strata_unit_context_t& context) {
  return view(context.unit);
}

strata_gradient_target_t SlicedUpdate::gradient_target(const strata_unit_context_t& context) {
  const uint32_t u = context.unit;
  model_.unit(u);
  Unit& unit = units_[u];
  if (context.micro_batch == 0) unit.has_kept = unit.has_reduced = false;  // a new window
  strata_gradient_target_t target{};
  target.dtype = STRATA_DTYPE_F32;
  target.mode = unit.has_kept ? STRATA_GRADIENT_ADD : STRATA_GRADIENT_WRITE;
  if (!model_.unit(u).is_trainable) return target;  // not an element in it
  const bool is_kept = !options_.sync_each_batch && (context.sync == 0 || unit.has_kept);
  if (!slices_gradients() || is_kept) {
    if (unit.gradients.data() == nullptr) allocate_gradients(u);
    target.data = unit.gradients.data();
    return target;
  }
  SlotRing::Slot* slot = gradient_slots_.take(u);
  if (slot == nullptr) {
    throw sdk::Error(STRATA_E_INTERNAL,
                     "no gradient slot is free for unit '" + model_.unit(u).name + "'");
  }
  target.data = slot->memory.data();
  target.ready = slot->ready.get();  // the reduction of the unit that had it before
  return target;
}

int32_t SlicedUpdate::after_backward(const strata_unit_context_t& context) {
  if (!model_.unit(context.unit).is_trainable) return STRATA_UNIT_KEPT;
  if (is_alone() || (context.sync == 0 && !options_.sync_each_batch)) {
    units_[context.unit].has_kept = true;
  } else {
    reduce_unit(context.unit);
  }
  group().check();
  return STRATA_UNIT_KEPT;
}

void SlicedUpdate::reduce_unit(uint32_t u) {
  const Span span(host_, name(), "after_backward/reduce_scatter");
  Unit& unit = units_[u];
  SlotRing::Slot* slot = gradient_slots_.find(u);
  const void* from = slot != nullptr ? slot->memory.data() : unit.gradients.data();
  computed_.record(compute());
  computed_.hold(group().stream());
  if (unit.has_reduced) {
    reduce_and_add(u, from);
  } else {
    group().communicator().reduce_scatter(from, reduced(u), slice(u).numel, STRATA_DTYPE_F32,
                                          group().stream());
  }
  unit.has_reduced = options_.sync_each_batch;
  unit.gradient_ready.record(group().stream());
  last_reduced_.record(group().stream());
  if (slot == nullptr) return;
  slot->ready.record(group().stream());
  gradient_slots_.release(u, compute());
}

// For sync_each_batch: a later micro-batch's sum goes through staging.
void SlicedUpdate::reduce_and_add(uint32_t u, const void* from) {
  if (added_.data() == nullptr) {
    uint64_t largest = 0;
    for (const sdk::UnitInfo& info : model_.units()) {
      if (info.is_trainable) largest = std::max(largest, info.bytes() / world());
    }
    added_ = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, largest,
                    STRATA_MEMORY_COLLECTIVE, "staging of sync_each_batch");
  }
  const uint64_t numel = slice(u).numel;
  group().communicator().reduce_scatter(from, added_.data(), numel, STRATA_DTYPE_F32,
                                        group().stream());
  sdk::check(sdk::services().kernels->add(host_, group().stream(), reduced(u), STRATA_DTYPE_F32,
                                          added_.data(), STRATA_DTYPE_F32, numel),
             "adding a micro-batch's gradients");
}

void SlicedUpdate::end_backward(bool sync) {
  const Span span(host_, name(), "end_backward");
  if (sync) {
    for (Unit& unit : units_) unit.has_kept = unit.has_reduced = false;
  }
  last_reduced_.hold(compute());
  group().check();
}

// ---- the step ----

void SlicedUpdate::before_step() { group().hold_compute(); }

void SlicedUpdate::after_step(bool updated) {
  if (!updated || is_alone()) return;
  computed_.record(compute());
  computed_.hold(group().stream());
  for (const uint32_t u : forward_order_) {
    if (!model_.unit(u).is_trainable) continue;
    const Span span(host_, name(), "after_step/all_gather");
    const Buffer& whole = units_[u].parameters;
    group().communicator().all_gather(whole.floats() + slice(u).offset, whole.data(),
                                      slice(u).numel, STRATA_DTYPE_F32, group().stream());
    units_[u].gathered.record(group().stream());
  }
  group().check();
}

// ---- the end ----

void SlicedUpdate::detach() {
  member_.leave();
  partitions_.clear();
  gradient_slots_ = {};
  units_.clear();
  forward_order_.clear();
  added_ = Buffer();
  opened_unit_.clear();
  model_ = {};
}

strata_estimate_t SlicedUpdate::estimate(const strata_create_args_t& args,
                                         const SlicedUpdateOptions& options,
                                         const strata_model_t& model) {
  const uint64_t world = args.world->size;
  const sdk::ModelTable table = sdk::ModelTable::padded(model, args.world->size);
  const sdk::SlotPlan plan(table, {});
  const bool is_sliced = options.slices_gradients && world > 1;
  strata_estimate_t estimate{};
  for (uint32_t u = 0; u < table.count(); ++u) {
    const sdk::UnitInfo& unit = table.unit(u);
    estimate.param_bytes += unit.bytes();
    if (!unit.is_trainable) continue;
    estimate.grad_bytes += is_sliced ? unit.bytes() / world : unit.bytes();
    estimate.partition_numel += unit.numel / world;
    estimate.sent_bytes_per_step += 2 * (world - 1) * (unit.bytes() / world);
    if (is_sliced && plan.has_own_gradient_slot[u]) estimate.staging_peak_bytes += unit.bytes();
  }
  if (is_sliced) {
    estimate.staging_peak_bytes += plan.shared_gradient_slots * plan.shared_gradient_bytes;
  }
  return estimate;
}

}  // namespace strata::zero
