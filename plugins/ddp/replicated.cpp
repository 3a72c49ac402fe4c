#include "replicated.h"

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
    units_[u].parameters =
        Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS, model_.unit(u).bytes(),
               STRATA_MEMORY_ZEROED, model_.unit(u).name.c_str());
  }
  make_buckets();
  make_partitions();
}

void Replicated::make_buckets() {
  std::vector<uint32_t> order;
  std::vector<uint64_t> bytes;
  for (const uint32_t u : model_.backward_order()) {
    if (!model_.unit(u).is_trainable) continue;
    order.push_back(u);
    bytes.push_back(model_.unit(u).bytes());
  }
  const std::vector<uint32_t> assigned =
      sdk::assign_buckets(bytes, options_.first_bucket_bytes, options_.bucket_bytes);
  buckets_.resize(assigned.empty() ? 0 : assigned.back() + 1);
  for (size_t i = 0; i < order.size(); ++i) {
    Bucket& bucket = buckets_[assigned[i]];
    units_[order[i]].bucket = assigned[i];
    units_[order[i]].gradient_offset = bucket.numel * sizeof(float);
    bucket.numel += model_.unit(order[i]).numel;
    ++bucket.units;
  }
  const uint32_t flags = STRATA_MEMORY_ZEROED | (world() > 1 ? STRATA_MEMORY_COLLECTIVE : 0U);
  for (Bucket& bucket : buckets_) {
    bucket.gradients = Buffer(host_, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS,
                              bucket.numel * sizeof(float), flags, "gradient bucket");
    bucket.computed = Event(host_);
    bucket.reduced = Event(host_);
  }
}

void Replicated::make_partitions() {
  for (uint32_t u = 0; u < model_.count(); ++u) {
    const sdk::UnitInfo& info = model_.unit(u);
    if (info.numel == 0) continue;
    strata_partition_t partition{};
    partition.unit = u;
    partition.numel = info.numel;
    partition.master = units_[u].parameters.data();
    partition.gradient_dtype = STRATA_DTYPE_F32;
    partition.place = STRATA_PLACE_DEVICE;
    partition.master_is_parameter = 1;
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
float* Replicated::gradient(const Unit& unit) const {
  if (unit.bucket == STRATA_NONE) return nullptr;
  return reinterpret_cast<float*>(buckets_[unit.bucket].gradients.chars() + unit.gradient_offset);
}

strata_unit_view_t Replicated::view(uint32_t unit) const {
  model_.unit(unit);
  strata_unit_view_t view{};
  view.dtype = STRATA_DTYPE_F32;
  view.data = units_[unit].parameters.data();
  return view;
}

// Every rank writes the same bytes into its own copy, so nothing needs to be sent.
strata_unit_view_t Replicated::open_unit(uint32_t unit, int32_t) {
  opened_unit_.require_none(model_);
  group().check();
  const strata_unit_view_t opened = view(unit);
  opened_unit_.set(unit);
  return opened;
}

void Replicated::close_unit(uint32_t unit) {
  opened_unit_.require(unit);
  opened_unit_.clear();
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
  model_.unit(context.unit);
  Unit& unit = units_[context.unit];
  if (context.micro_batch == 0) unit.has_gradient = false;  // a new window
  strata_gradient_target_t target{};
  target.dtype = STRATA_DTYPE_F32;
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
  bucket.computed.record(sdk::services().streams->compute(host_));
  bucket.computed.hold(group().stream());
  group().communicator().all_reduce(bucket.gradients.data(), bucket.gradients.data(), bucket.numel,
                                    STRATA_DTYPE_F32, STRATA_REDUCE_SUM, group().stream());
  bucket.reduced.record(group().stream());
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

// ---- the end ----

void Replicated::detach() {
  member_.leave();
  partitions_.clear();
  buckets_.clear();
  units_.clear();
  model_ = {};
  opened_unit_.clear();
}

strata_estimate_t Replicated::estimate(const strata_create_args_t& args,
                                       const strata_model_t& model) {
  const uint64_t world = args.world->size;
  strata_estimate_t estimate{};
  const sdk::ModelTable table = sdk::ModelTable::padded(model, args.world->size);
  for (const sdk::UnitInfo& unit : table.units()) {
    estimate.param_bytes += unit.bytes();
    if (!unit.is_trainable) continue;
    estimate.grad_bytes += unit.bytes();
    estimate.partition_numel += unit.numel;
    estimate.sent_bytes_per_step += 2 * (world - 1) * (unit.bytes() / world);
  }
  return estimate;
}

}  // namespace strata::ddp
