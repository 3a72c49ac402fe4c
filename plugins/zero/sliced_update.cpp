#include "sliced_update.h"

#include <algorithm>

#include "strata/sdk/slices.h"

namespace strata::zero {

using sdk::Buffer;
using sdk::Event;
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
    mesh_ = sdk::ShardMesh(shape(), group());
    group().together([&] { allocate(); });
  } catch (...) {
    detach();
    throw;
  }
}

void SlicedUpdate::allocate() {
  units_.resize(model_.count());
  computed_ = Event(host_);
  forward_order_ = model_.backward_order();
  std::reverse(forward_order_.begin(), forward_order_.end());
  const uint32_t flags = STRATA_MEMORY_ZEROED | (is_alone() ? 0U : STRATA_MEMORY_COLLECTIVE);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    const char* label = info.name.c_str();
    units_[u].parameters = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS,
                                  info.parameter_bytes(), flags, label);
    units_[u].master =
        sdk::Master(host_, parameter_slice(u), info.compute_dtype, slice(u).numel, label);
    if (info.is_trainable) units_[u].gathered = Event(host_);
  }
  gradients_ = sdk::SlicedGradients(
      {host_, name(), options_.slices_gradients, options_.sync_each_batch}, model_, group(), mesh_);
  make_partitions();
}

char* SlicedUpdate::parameter_slice(uint32_t unit) const {
  const uint64_t offset = slice(unit).offset * sdk::element_bytes(model_.unit(unit).compute_dtype);
  return units_[unit].parameters.chars() + offset;
}

void SlicedUpdate::make_partitions() {
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    if (info.numel == 0) continue;
    strata_partition_t partition{};
    partition.unit = u;
    partition.offset = slice(u).offset;
    partition.numel = slice(u).numel;
    partition.master = units_[u].master.data();
    partition.gradient = gradients_.slice(u);
    partition.gradient_dtype = info.accumulate_dtype;
    partition.place = STRATA_PLACE_DEVICE;
    partition.trainable = info.is_trainable ? 1 : 0;
    partition.master_is_parameter = units_[u].master.is_parameter() ? 1 : 0;
    partition.replicas = 1;
    partition.gradient_ready = gradients_.ready(u);
    partitions_.push_back(partition);
  }
}

strata_unit_view_t SlicedUpdate::view(uint32_t unit) const {
  strata_unit_view_t view{};
  view.dtype = model_.unit(unit).compute_dtype;
  view.data = units_[unit].parameters.data();
  view.ready = units_[unit].gathered.get();
  return view;
}

// Every rank writes the same bytes into its own copy, so nothing needs to be sent.
strata_unit_view_t SlicedUpdate::open_unit(uint32_t unit, int32_t intent) {
  opened_.require_none(model_);
  group().synchronize("what after_step began");
  const uint64_t numel = model_.unit(unit).numel;
  strata_unit_view_t opened{};
  opened.dtype = STRATA_DTYPE_F32;
  if (units_[unit].master.is_parameter()) {
    opened.data = units_[unit].parameters.data();
  } else if (is_alone()) {
    opened.data = units_[unit].master.data();
  } else {
    opened.data = opened_.allocate(host_, numel);
    if (intent == STRATA_INTENT_READ && numel > 0) {
      const Span span(host_, name(), "open_unit/all_gather");
      hold_collectives();
      mesh_.gather(units_[unit].master.data(), opened.data, numel, STRATA_DTYPE_F32);
      group().synchronize("the gather of an opened unit");
    }
  }
  opened_.set(unit, intent);
  return opened;
}

void SlicedUpdate::close_unit(uint32_t unit) {
  opened_.require(unit);
  if (opened_.is_written() && !units_[unit].master.is_parameter()) {
    store_opened(unit);
    computed_.record(compute());
    computed_.synchronize("the store of an opened unit");
  }
  opened_.clear();
}

// The slice of the masters from the opened unit, and all parameters, as every rank rounds them.
void SlicedUpdate::store_opened(uint32_t unit) {
  const sdk::UnitInfo& info = model_.unit(unit);
  if (is_alone()) return units_[unit].master.store(compute());
  if (info.numel == 0) return;
  const strata_host_kernels_1_t* kernels = sdk::services().kernels;
  const sdk::Slice mine = slice(unit);
  sdk::check(kernels->copy(host_, compute(), units_[unit].master.data(),
                           opened_.memory() + mine.offset, mine.numel * sizeof(float)),
             "storing masters");
  sdk::check(kernels->cast(host_, compute(), units_[unit].parameters.data(), info.compute_dtype,
                           opened_.memory(), STRATA_DTYPE_F32, info.numel),
             "rounding masters into parameters");
}

void SlicedUpdate::hold_collectives() {
  computed_.record(compute());
  computed_.hold(group().stream());
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
  model_.unit(context.unit);
  return gradients_.target(context);
}

int32_t SlicedUpdate::after_backward(const strata_unit_context_t& context) {
  model_.unit(context.unit);
  gradients_.after_backward(context);
  group().check();
  return STRATA_UNIT_KEPT;
}

void SlicedUpdate::end_backward(bool sync) {
  const Span span(host_, name(), "end_backward");
  gradients_.end_backward(sync);
  group().check();
}

// ---- the step ----

void SlicedUpdate::before_step() { group().hold_compute(); }

// On one rank the stream of collectives is the compute stream.
void SlicedUpdate::after_step(bool updated) {
  if (!updated) return;
  hold_collectives();
  for (const uint32_t u : forward_order_) {
    const sdk::UnitInfo& info = model_.unit(u);
    if (!info.is_trainable) continue;
    units_[u].master.store(group().stream());
    if (is_alone()) continue;
    const Span span(host_, name(), "after_step/all_gather");
    mesh_.gather(parameter_slice(u), units_[u].parameters.data(), info.numel, info.compute_dtype);
    units_[u].gathered.record(group().stream());
  }
  group().check();
}

// ---- the end ----

void SlicedUpdate::detach() {
  mesh_ = {};
  member_.leave();
  partitions_.clear();
  gradients_ = {};
  units_.clear();
  forward_order_.clear();
  opened_.clear();
  model_ = {};
}

strata_estimate_t SlicedUpdate::estimate(const strata_create_args_t& args,
                                         const SlicedUpdateOptions& options,
                                         const strata_model_t& model) {
  const uint32_t world = args.world->size;
  const sdk::ModelTable table = sdk::ModelTable::padded(model, world);
  const sdk::MeshShape shape{world, world, true};
  strata_estimate_t estimate{};
  for (const sdk::UnitInfo& unit : table.units()) {
    estimate.param_bytes += unit.parameter_bytes();
    estimate.master_bytes += unit.master_bytes() / world;
    if (!unit.is_trainable) continue;
    estimate.partition_numel += unit.numel / world;
    estimate.sent_bytes_per_step +=
        shape.gather_sent(unit.numel) * sdk::element_bytes(unit.compute_dtype);
  }
  sdk::GradientPlan(table, shape, options.slices_gradients).add_to(estimate, table, shape);
  return estimate;
}

}  // namespace strata::zero
