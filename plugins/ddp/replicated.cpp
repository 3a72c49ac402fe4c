#include "replicated.h"

#include <algorithm>
#include <utility>

#include "strata/sdk/buckets.h"
#include "strata/sdk/slices.h"

namespace strata::ddp {

using sdk::Buffer;
using sdk::Event;
using sdk::Span;

std::string ReplicatedOptions::text() const {
  return "option bucket_cap_mb " + std::to_string(bucket_bytes) + " bytes\n" +
         "option first_bucket_cap_mb " + std::to_string(first_bucket_bytes) + " bytes\n" +
         "option overlap_comm " + (overlap_comm ? "true" : "false") + "\n";
}

Replicated::Replicated(const strata_create_args_t& args, const ReplicatedOptions& options)
    : host_(args.host), options_(options), member_(args, "ddp", options.overlap_comm) {}

// ---- attach ----

strata_layout_t Replicated::layout(const strata_unit_t&) { return sdk::sliced_layout(world()); }

void Replicated::attach(const strata_model_t& model) {
  try {
    model_ = member_.join(model, options_.text());
    group().together([&] { allocate(); });
  } catch (...) {
    detach();
    throw;
  }
}

void Replicated::allocate() {
  units_.resize(model_.count());
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    const char* label = info.name.c_str();
    units_[u].parameters = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS,
                                  info.parameter_bytes(), STRATA_MEMORY_ZEROED, label);
    units_[u].master =
        sdk::Master(host_, units_[u].parameters.data(), info.compute_dtype, info.numel, label);
  }
  allocate_buckets();
  make_partitions();
}

Replicated::BucketPlan::BucketPlan(const sdk::ModelTable& model, const ReplicatedOptions& options,
                                   uint32_t world)
    : bucket(model.count(), STRATA_NONE), offset(model.count(), 0) {
  std::vector<uint32_t> order;
  std::vector<uint64_t> bytes;
  std::vector<uint64_t> kinds;
  for (const uint32_t u : model.backward_order()) {
    const sdk::UnitInfo& unit = model.unit(u);
    if (!unit.is_trainable) continue;
    order.push_back(u);
    bytes.push_back(unit.wire_bytes());
    kinds.push_back(static_cast<uint64_t>(unit.reduce_dtype) << 32 |
                    static_cast<uint32_t>(unit.accumulate_dtype));
  }
  const std::vector<uint32_t> assigned =
      sdk::assign_buckets(bytes, options.first_bucket_bytes, options.bucket_bytes, kinds);
  buckets.resize(assigned.empty() ? 0 : assigned.back() + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    const sdk::UnitInfo& unit = model.unit(order[i]);
    Bucket& into = buckets[assigned[i]];
    bucket[order[i]] = assigned[i];
    offset[order[i]] = into.numel;
    into.dtype = unit.accumulate_dtype;
    into.wire_dtype = unit.reduce_dtype;
    into.numel += unit.numel;
    ++into.units;
  }
  for (const Bucket& one : buckets) {
    if (world > 1 && one.is_cast()) wire_bytes = std::max(wire_bytes, one.wire_bytes());
  }
}

void Replicated::allocate_buckets() {
  BucketPlan plan(model_, options_, world());
  buckets_ = std::move(plan.buckets);
  for (uint32_t u = 0; u < model_.count(); ++u) {
    units_[u].bucket = plan.bucket[u];
    units_[u].gradient_offset = plan.offset[u];
  }
  for (Bucket& bucket : buckets_) {
    const bool is_sent = world() > 1 && !bucket.is_cast();
    bucket.gradients =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS,
               bucket.numel * sdk::element_bytes(bucket.dtype),
               STRATA_MEMORY_ZEROED | (is_sent ? STRATA_MEMORY_COLLECTIVE : 0U), "gradient bucket");
    bucket.computed = Event(host_);
    bucket.reduced = Event(host_);
  }
  if (plan.wire_bytes == 0) return;
  wire_ = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, plan.wire_bytes,
                 STRATA_MEMORY_COLLECTIVE, "gradients on the wire");
}

void Replicated::make_partitions() {
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    if (info.numel == 0) continue;
    strata_partition_t partition{};
    partition.unit = u;
    partition.numel = info.numel;
    partition.master = units_[u].master.data();
    partition.gradient_dtype = info.accumulate_dtype;
    partition.place = STRATA_PLACE_DEVICE;
    partition.master_is_parameter = units_[u].master.is_parameter() ? 1 : 0;
    partition.replicas = world();
    partition.replica = member_.rank();
    if (info.is_trainable) {
      partition.trainable = 1;
      partition.gradient = gradient(units_[u]);
      const Bucket& bucket = buckets_[units_[u].bucket];
      // Several units: when one is done, the event still is that of the step before.
      const bool is_armed_by_unit = world() > 1 && options_.overlap_comm && bucket.units == 1;
      partition.gradient_ready = is_armed_by_unit ? bucket.reduced.get() : nullptr;
    }
    partitions_.push_back(partition);
  }
}

// Null for a unit that is not trained.
void* Replicated::gradient(const Unit& unit) const {
  if (unit.bucket == STRATA_NONE) return nullptr;
  const Bucket& bucket = buckets_[unit.bucket];
  return bucket.gradients.chars() + unit.gradient_offset * sdk::element_bytes(bucket.dtype);
}

strata_unit_view_t Replicated::view(uint32_t unit) const {
  strata_unit_view_t view{};
  view.dtype = model_.unit(unit).compute_dtype;
  view.data = units_[unit].parameters.data();
  return view;
}

// Every rank writes the same bytes into its own copy, so nothing needs to be sent.
strata_unit_view_t Replicated::open_unit(uint32_t unit, int32_t intent) {
  opened_.require_none(model_);
  group().check();
  model_.unit(unit);
  strata_unit_view_t opened{};
  opened.dtype = STRATA_DTYPE_F32;
  opened.data = units_[unit].master.data();
  opened_.set(unit, intent);
  return opened;
}

void Replicated::close_unit(uint32_t unit) {
  opened_.require(unit);
  if (opened_.is_written()) units_[unit].master.store(compute());
  opened_.clear();
}

// ---- one micro-batch ----

strata_unit_view_t Replicated::before_forward(const strata_unit_context_t& context) {
  return view(context.unit);
}

int32_t Replicated::after_forward(const strata_unit_context_t&) { return STRATA_UNIT_KEPT; }

strata_unit_view_t Replicated::before_backward(const strata_unit_context_t& context) {
  return view(context.unit);
}

strata_gradient_target_t Replicated::gradient_target(const strata_unit_context_t& context) {
  const sdk::UnitInfo& info = model_.unit(context.unit);
  Unit& unit = units_[context.unit];
  if (context.micro_batch == 0) unit.has_gradient = false;  // a new window
  strata_gradient_target_t target{};
  target.dtype = info.accumulate_dtype;
  target.data = gradient(unit);
  target.mode = unit.has_gradient ? STRATA_GRADIENT_ADD : STRATA_GRADIENT_WRITE;
  return target;
}

int32_t Replicated::after_backward(const strata_unit_context_t& context) {
  model_.unit(context.unit);
  Unit& unit = units_[context.unit];
  if (unit.bucket == STRATA_NONE) return STRATA_UNIT_KEPT;
  unit.has_gradient = true;
  Bucket& bucket = buckets_[unit.bucket];
  // Units end in the order of their buckets, so every rank starts the same reductions in the same
  // order.
  const bool is_full = context.sync != 0 && ++bucket.units_done == bucket.units;
  if (is_full && options_.overlap_comm) reduce(bucket);
  return STRATA_UNIT_KEPT;
}

void Replicated::reduce(Bucket& bucket) {
  if (group().is_alone()) return;
  const Span span(host_, "ddp/after_backward/all_reduce");
  const strata_stream_t stream = group().stream();
  void* const gradients = bucket.gradients.data();
  void* const sent = bucket.is_cast() ? wire_.data() : gradients;
  const auto cast = [&](void* to, int32_t to_dtype, const void* from, int32_t from_dtype) {
    if (!bucket.is_cast()) return;
    sdk::check(
        sdk::services().kernels->cast(host_, stream, to, to_dtype, from, from_dtype, bucket.numel),
        "casting gradients for the wire");
  };
  bucket.computed.record(compute());
  bucket.computed.hold(stream);
  cast(sent, bucket.wire_dtype, gradients, bucket.dtype);
  group().communicator().all_reduce(sent, sent, bucket.numel, bucket.wire_dtype, STRATA_REDUCE_SUM,
                                    stream);
  cast(gradients, bucket.dtype, sent, bucket.wire_dtype);
  bucket.reduced.record(stream);
}

void Replicated::end_backward(bool sync) {
  if (!sync) return group().check();
  const Span span(host_, "ddp/end_backward");
  for (Bucket& bucket : buckets_) {
    if (!options_.overlap_comm) reduce(bucket);
    bucket.units_done = 0;
  }
  for (Unit& unit : units_) unit.has_gradient = false;
  group().hold_compute();
  group().check();
}

void Replicated::after_step(bool updated) {
  if (!updated) return;
  for (uint32_t u = 0; u < model_.count(); ++u) {
    if (model_.unit(u).is_trainable) units_[u].master.store(compute());
  }
}

// ---- the end ----

void Replicated::detach() {
  member_.leave();
  partitions_.clear();
  buckets_.clear();
  units_.clear();
  wire_ = Buffer();
  opened_.clear();
  model_ = {};
}

strata_estimate_t Replicated::estimate(const strata_create_args_t& args,
                                       const ReplicatedOptions& options,
                                       const strata_model_t& model) {
  const uint64_t world = args.world->size;
  strata_estimate_t estimate{};
  const sdk::ModelTable table = sdk::ModelTable::padded(model, args.world->size);
  for (const sdk::UnitInfo& unit : table.units()) {
    estimate.param_bytes += unit.parameter_bytes();
    estimate.master_bytes += unit.master_bytes();
    if (!unit.is_trainable) continue;
    estimate.grad_bytes += unit.gradient_bytes();
    estimate.partition_numel += unit.numel;
    estimate.sent_bytes_per_step += 2 * (world - 1) * (unit.wire_bytes() / world);
  }
  estimate.staging_peak_bytes = BucketPlan(table, options, args.world->size).wire_bytes;
  return estimate;
}

}  // namespace strata::ddp
