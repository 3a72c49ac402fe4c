#include "strata/sdk/sliced_gradients.h"

#include <algorithm>
#include <utility>

namespace strata::sdk {
namespace {

constexpr uint32_t kSharedSlots = 2;  // one is written while the other is reduced

}  // namespace

// ---- before it runs ----

GradientPlan::GradientPlan(const ModelTable& model, const MeshShape& shape, bool wants_slices)
    : is_sliced(wants_slices && shape.shard_group_size > 1) {
  for (uint32_t u = 0; u < model.count(); ++u) {
    const UnitInfo& unit = model.unit(u);
    has_own_slot.push_back(is_sliced && unit.is_trainable && model.is_root(u));
    if (!unit.is_trainable) continue;
    if (is_sliced && !has_own_slot[u]) {
      shared_slots = std::min(shared_slots + 1, kSharedSlots);
      shared_bytes = std::max(shared_bytes, unit.gradient_bytes());
    }
    if (shape.world == 1 || !unit.is_cast()) continue;
    wire_bytes = std::max(wire_bytes, unit.wire_bytes());
    if (is_sliced) {
      landing_bytes = std::max(landing_bytes, unit.wire_bytes() / shape.shard_group_size);
    }
  }
}

void GradientPlan::add_to(strata_estimate_t& estimate, const ModelTable& model,
                          const MeshShape& shape) const {
  for (uint32_t u = 0; u < model.count(); ++u) {
    const UnitInfo& unit = model.unit(u);
    if (!unit.is_trainable) continue;
    estimate.grad_bytes += unit.gradient_bytes() / (is_sliced ? shape.shard_group_size : 1);
    if (has_own_slot[u]) estimate.staging_peak_bytes += unit.gradient_bytes();
    if (shape.world == 1) continue;
    estimate.sent_bytes_per_step +=
        shape.reduce_sent(unit.numel) * element_bytes(unit.reduce_dtype);
  }
  estimate.staging_peak_bytes += shared_slots * shared_bytes + wire_bytes + landing_bytes;
}

// ---- at rest ----

SlicedGradients::SlicedGradients(Config config, const ModelTable& model, RankGroup& group,
                                 ShardMesh& mesh)
    : config_(std::move(config)), model_(&model), group_(&group), mesh_(&mesh) {
  const GradientPlan plan(model, mesh.shape(), config_.is_sliced);
  config_.is_sliced = plan.is_sliced;
  config_.each_batch = config_.each_batch && plan.is_sliced;
  units_.resize(model.count());
  computed_ = Event(config_.host);
  last_reduced_ = Event(config_.host);
  allocate_units();
  if (plan.is_sliced) allocate_slots(plan);
  const auto staging = [&](uint64_t bytes, const char* label) {
    return bytes == 0 ? Buffer()
                      : buffer(STRATA_TAG_STAGING, bytes, STRATA_MEMORY_COLLECTIVE, label);
  };
  wire_ = staging(plan.wire_bytes, "gradients on the wire");
  landing_ = staging(plan.landing_bytes, "gradients from the wire");
}

Buffer SlicedGradients::buffer(int32_t tag, uint64_t bytes, uint32_t flags,
                               const std::string& label) const {
  return {config_.host, STRATA_PLACE_DEVICE, tag, bytes, flags, label.c_str()};
}

void SlicedGradients::allocate_units() {
  for (uint32_t u = 0; u < model_->count(); ++u) {
    const UnitInfo& info = model_->unit(u);
    if (!info.is_trainable) continue;
    const bool is_sent = !group_->is_alone() && !casts(u);
    const uint32_t flags = STRATA_MEMORY_ZEROED | (is_sent ? STRATA_MEMORY_COLLECTIVE : 0U);
    const uint64_t bytes = slice_numel(u) * element_bytes(info.accumulate_dtype);
    if (config_.is_sliced) {
      units_[u].slice = buffer(STRATA_TAG_GRADIENTS, bytes, flags, info.name);
    } else {
      units_[u].whole = buffer(STRATA_TAG_GRADIENTS, info.gradient_bytes(), flags, info.name);
    }
    units_[u].ready = Event(config_.host);
  }
}

void SlicedGradients::allocate_slots(const GradientPlan& plan) {
  slots_ = SlotRing(config_.host, model_->count(), plan.shared_slots, plan.shared_bytes,
                    STRATA_TAG_STAGING, STRATA_MEMORY_COLLECTIVE, "slot for gradients");
  for (uint32_t u = 0; u < model_->count(); ++u) {
    if (!plan.has_own_slot[u]) continue;
    slots_.add_own(u, model_->unit(u).gradient_bytes(), model_->unit(u).name.c_str());
  }
}

void SlicedGradients::allocate_kept(uint32_t unit) {
  const UnitInfo& info = model_->unit(unit);
  units_[unit].whole =
      buffer(STRATA_TAG_GRADIENTS, info.gradient_bytes(),
             casts(unit) ? 0U : STRATA_MEMORY_COLLECTIVE, "kept gradients of " + info.name);
}

uint64_t SlicedGradients::slice_numel(uint32_t unit) const {
  return mesh_->shape().shard_numel(model_->unit(unit).numel);
}

char* SlicedGradients::slice(uint32_t u) const {
  const UnitInfo& info = model_->unit(u);
  if (!info.is_trainable) return nullptr;
  if (config_.is_sliced) return units_[u].slice.chars();
  const uint64_t offset = mesh_->shape().piece(info.numel, mesh_->place(), 0).offset;
  return units_[u].whole.chars() + offset * element_bytes(info.accumulate_dtype);
}

strata_event_t SlicedGradients::ready(uint32_t unit) const {
  return group_->is_alone() ? nullptr : units_[unit].ready.get();
}

// ---- one micro-batch ----

strata_gradient_target_t SlicedGradients::target(const strata_unit_context_t& context) {
  const UnitInfo& info = model_->unit(context.unit);
  Unit& unit = units_[context.unit];
  if (context.micro_batch == 0) unit.has_kept = unit.has_reduced = false;  // a new window
  strata_gradient_target_t target{};
  target.dtype = info.accumulate_dtype;
  target.mode = unit.has_kept ? STRATA_GRADIENT_ADD : STRATA_GRADIENT_WRITE;
  if (!info.is_trainable) return target;  // not an element in it
  const bool is_kept = !config_.each_batch && (context.sync == 0 || unit.has_kept);
  if (!config_.is_sliced || is_kept) {
    if (unit.whole.data() == nullptr) allocate_kept(context.unit);
    target.data = unit.whole.data();
    return target;
  }
  SlotRing::Slot* slot = slots_.take(context.unit);
  if (slot == nullptr) {
    throw Error(STRATA_E_INTERNAL, "no gradient slot is free for unit '" + info.name + "'");
  }
  target.data = slot->memory.data();
  target.ready = slot->ready.get();  // the reduction of the unit that had it before
  return target;
}

void SlicedGradients::after_backward(const strata_unit_context_t& context) {
  if (!model_->unit(context.unit).is_trainable) return;
  if (group_->is_alone() || (context.sync == 0 && !config_.each_batch)) {
    units_[context.unit].has_kept = true;
  } else {
    reduce(context.unit);
  }
}

void SlicedGradients::reduce(uint32_t u) {
  const Span span(config_.host, config_.strategy, "after_backward/reduce");
  const UnitInfo& info = model_->unit(u);
  const strata_stream_t stream = group_->stream();
  Unit& unit = units_[u];
  SlotRing::Slot* slot = slots_.find(u);
  const void* sent = slot != nullptr ? slot->memory.data() : unit.whole.data();
  computed_.record(compute());
  computed_.hold(stream);
  if (casts(u)) {
    check(services().kernels->cast(config_.host, stream, wire_.data(), info.reduce_dtype, sent,
                                   info.accumulate_dtype, info.numel),
          "casting gradients for the wire");
    sent = wire_.data();
  }
  char* const landed = landing(u);
  mesh_->reduce(sent, landed, info.numel, info.reduce_dtype);
  if (landed != slice(u)) take_landed(u, landed);
  unit.has_reduced = config_.each_batch;
  unit.ready.record(stream);
  last_reduced_.record(stream);
  if (slot == nullptr) return;
  slot->ready.record(stream);
  slots_.release(u, compute());
}

char* SlicedGradients::landing(uint32_t u) {
  const UnitInfo& info = model_->unit(u);
  if (casts(u)) {
    if (config_.is_sliced) return landing_.chars();
    const uint64_t offset = mesh_->shape().piece(info.numel, mesh_->place(), 0).offset;
    return wire_.chars() + offset * element_bytes(info.reduce_dtype);
  }
  if (!units_[u].has_reduced) return slice(u);
  if (added_.data() == nullptr) {
    uint64_t largest = 0;
    for (const UnitInfo& other : model_->units()) {
      if (!other.is_trainable || other.is_cast()) continue;
      largest = std::max(largest, other.wire_bytes() / mesh_->shape().shard_group_size);
    }
    added_ =
        buffer(STRATA_TAG_STAGING, largest, STRATA_MEMORY_COLLECTIVE, "staging of sync_each_batch");
  }
  return added_.chars();
}

void SlicedGradients::take_landed(uint32_t u, const char* landed) {
  const UnitInfo& info = model_->unit(u);
  const strata_host_kernels_1_t* kernels = services().kernels;
  const auto take = units_[u].has_reduced ? kernels->add : kernels->cast;
  check(take(config_.host, group_->stream(), slice(u), info.accumulate_dtype, landed,
             info.reduce_dtype, slice_numel(u)),
        "taking gradients from the wire");
}

void SlicedGradients::end_backward(bool sync) {
  if (sync) {
    for (Unit& unit : units_) unit.has_kept = unit.has_reduced = false;
  }
  last_reduced_.hold(compute());
}

}  // namespace strata::sdk
