#include "strata/strategy/session.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <utility>

#include "strata/strategy/describe.h"

namespace strata::strategy {
namespace {

int32_t to_abi(hooks::Phase phase) {
  switch (phase) {
    case hooks::Phase::kForward: return STRATA_PHASE_FORWARD;
    case hooks::Phase::kRecompute: return STRATA_PHASE_RECOMPUTE;
    case hooks::Phase::kInference: return STRATA_PHASE_INFERENCE;
  }
  return STRATA_PHASE_FORWARD;
}

at::ScalarType to_torch(int32_t dtype) {
  switch (dtype) {
    case STRATA_DTYPE_BF16: return at::kBFloat16;
    case STRATA_DTYPE_F16: return at::kHalf;
    case STRATA_DTYPE_F64: return at::kDouble;
    default: return at::kFloat;
  }
}

void throw_if_error(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

}  // namespace

Session::Session(plugin::StrategyInstance strategy, device::Host& host, model::ModelSpec spec)
    : strategy_(std::move(strategy)), host_(host), spec_(std::move(spec)) {}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::attach(plugin::StrategyInstance strategy,
                                                 device::Host& host, model::ModelSpec spec) {
  std::unique_ptr<Session> session(new Session(std::move(strategy), host, std::move(spec)));
  STRATA_RETURN_IF_ERROR(session->lay_out_and_attach());
  STRATA_RETURN_IF_ERROR(session->read_partitions());
  return session;
}

Status Session::lay_out_and_attach() {
  const ModelDescription sizes(spec_, {});
  std::vector<model::FlatLayout> layouts;
  for (size_t u = 0; u < spec_.units.size(); ++u) {
    strata_layout_t wanted{};
    wanted.struct_size = sizeof(wanted);
    STRATA_RETURN_IF_ERROR(strategy_.layout(sizes.unit(static_cast<int>(u)), &wanted));
    layouts.push_back(model::make_flat_layout(spec_.units[u],
                                              static_cast<int64_t>(wanted.parameter_alignment),
                                              static_cast<int64_t>(wanted.unit_multiple)));
    units_.push_back(std::make_unique<model::UnitStorage>(spec_.units[u], layouts.back(),
                                                          to_torch(spec_.units[u].dtypes.compute)));
  }
  const ModelDescription model(spec_, layouts);
  STRATA_RETURN_IF_ERROR(strategy_.attach(model.model()));
  is_attached_ = true;
  compute_ = host_.compute_stream();
  return run_guarded(
      [&] { graph_ = std::make_unique<hooks::UnitGraph>(spec_.order, units(), *this); });
}

Status Session::read_partitions() {
  partitions_.clear();
  for (uint32_t i = 0; i < strategy_.partition_count(); ++i) {
    strata_partition_t from{};
    from.struct_size = sizeof(from);
    STRATA_RETURN_IF_ERROR(strategy_.partition(i, &from));
    model::Partition to;
    to.unit = static_cast<int>(from.unit);
    to.offset = static_cast<int64_t>(from.offset);
    to.numel = static_cast<int64_t>(from.numel);
    to.master = static_cast<float*>(from.master);
    to.gradient = from.gradient;
    to.gradient_dtype = from.gradient_dtype;
    to.is_trainable = from.trainable != 0;
    to.master_is_parameter = from.master_is_parameter != 0;
    to.replicas = static_cast<int>(from.replicas);
    to.replica = static_cast<int>(from.replica);
    to.gradient_ready = from.gradient_ready;
    partitions_.push_back(to);
  }
  return {};
}

std::vector<model::UnitStorage*> Session::units() const {
  std::vector<model::UnitStorage*> out;
  for (const auto& unit : units_) out.push_back(unit.get());
  return out;
}

// ---- whole units ----

Status Session::write_units(const UnitVisitor& write) {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    STRATA_RETURN_IF_ERROR(write_unit(u, write));
  }
  return {};
}

Status Session::read_units(const UnitVisitor& read) {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    STRATA_RETURN_IF_ERROR(read_unit(u, read));
  }
  return {};
}

Status Session::write_unit(int unit, const UnitVisitor& write) {
  return visit_unit(unit, STRATA_INTENT_WRITE, write);
}

Status Session::read_unit(int unit, const UnitVisitor& read) {
  return visit_unit(unit, STRATA_INTENT_READ, read);
}

Status Session::visit_unit(int unit, int32_t intent, const UnitVisitor& visit) {
  model::UnitStorage& storage = *units_[static_cast<size_t>(unit)];
  strata_unit_view_t view{};
  view.struct_size = sizeof(view);
  STRATA_RETURN_IF_ERROR(strategy_.open_unit(static_cast<uint32_t>(unit), intent, &view));
  if (view.ready != nullptr) STRATA_RETURN_IF_ERROR(host_.wait(compute_, view.ready));
  float* data = static_cast<float*>(view.data);
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < storage.spec().parameters.size(); ++i) {
    parameters.push_back(at::from_blob(data + storage.layout().offsets[i],
                                       storage.spec().parameters[i].shape, at::kFloat));
  }
  if (intent == STRATA_INTENT_WRITE) {
    for (const model::FlatLayout::Gap& gap : storage.layout().gaps) {
      std::memset(data + gap.first, 0, static_cast<size_t>(gap.last - gap.first) * sizeof(float));
    }
    storage.advance_epoch();
  }
  // The unit is closed whatever the visitor says: the other ranks close it too.
  Status visited = run_guarded([&] { throw_if_error(visit(unit, parameters)); });
  const Status closed = strategy_.close_unit(static_cast<uint32_t>(unit));
  return visited.ok() ? closed : visited;
}

// ---- steps ----

Status Session::run_guarded(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const StatusError& error) {
    return error.status();
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_memory(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return internal_error(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return out_of_memory("the machine has no memory left for activations. HINT: a smaller batch");
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

Status Session::train_micro_batch(int index, bool is_last, const LossBody& body) {
  micro_batch_ = index;
  is_last_ = is_last;
  STRATA_RETURN_IF_ERROR(run_guarded([&] {
    graph_->begin(hooks::Phase::kForward);
    at::Tensor loss_sum;
    {
      const device::Span span(host_, "forward");
      loss_sum = body(*graph_);
    }
    const device::Span span(host_, "backward");
    graph_->backward(loss_sum);
  }));
  return strategy_.end_backward(is_last ? 1 : 0);
}

Status Session::infer(const InferenceBody& body) {
  const Status status = run_guarded([&] {
    graph_->begin(hooks::Phase::kInference);
    body(*graph_);
  });
  if (!status.ok()) graph_->reset();
  return status;
}

Status Session::before_step() { return strategy_.before_step(); }

Status Session::after_step(bool updated) {
  if (updated) {
    for (const auto& unit : units_) unit->advance_epoch();
  }
  return strategy_.after_step(updated ? 1 : 0);
}

Status Session::all_reduce(std::span<double> values, int32_t op) {
  return all_reduce_raw(values.data(), values.size(), STRATA_DTYPE_F64, op);
}

Status Session::all_reduce(std::span<int64_t> values, int32_t op) {
  return all_reduce_raw(values.data(), values.size(), STRATA_DTYPE_I64, op);
}

Status Session::all_reduce_raw(void* values, size_t count, int32_t dtype, int32_t op) {
  strata_small_reduction_t reduction{};
  reduction.struct_size = sizeof(reduction);
  reduction.dtype = dtype;
  reduction.op = op;
  reduction.count = static_cast<uint32_t>(count);
  reduction.values = values;
  return strategy_.all_reduce_small(reduction);
}

Status Session::detach() {
  if (!is_attached_) return {};
  STRATA_RETURN_IF_ERROR(strategy_.quiesce());
  graph_.reset();
  for (const auto& unit : units_) unit->unbind();
  partitions_.clear();
  is_attached_ = false;
  return strategy_.detach();
}

void Session::abort(const std::string& reason) {
  strategy_.abort(reason.c_str());
  host_.abort(reason);
}

void Session::set_recompute(std::function<bool(int unit)> is_recomputed) {
  graph_->set_recompute(std::move(is_recomputed));
}

// ---- hooks::UnitEvents ----

strata_unit_context_t Session::context(int unit, int32_t phase, int next_unit) const {
  strata_unit_context_t context{};
  context.struct_size = sizeof(context);
  context.unit = static_cast<uint32_t>(unit);
  context.phase = phase;
  context.next_unit = next_unit == hooks::kNoUnit ? STRATA_NONE : static_cast<uint32_t>(next_unit);
  context.micro_batch = static_cast<uint32_t>(micro_batch_);
  context.sync = is_last_ ? 1 : 0;
  context.compute = compute_;
  return context;
}

void Session::bind(int unit, const strata_unit_view_t& view) {
  const model::UnitSpec& spec = spec_.units[static_cast<size_t>(unit)];
  if (view.dtype != spec.dtypes.compute) {
    throw_if_error(
        internal_error(fmt::format("the strategy handed out unit '{}' in dtype {}, not {}",
                                   spec.name, view.dtype, spec.dtypes.compute)));
  }
  if (view.ready != nullptr) throw_if_error(host_.wait(compute_, view.ready));
  units_[static_cast<size_t>(unit)]->bind(view.data);
}

void Session::apply_residency(int unit, int32_t residency) {
  if (residency == STRATA_UNIT_RELEASED) units_[static_cast<size_t>(unit)]->unbind();
}

void Session::before_forward(int unit, hooks::Phase phase, int next_unit) {
  strata_unit_view_t view{};
  view.struct_size = sizeof(view);
  throw_if_error(strategy_.before_forward(context(unit, to_abi(phase), next_unit), &view));
  bind(unit, view);
}

void Session::after_forward(int unit, hooks::Phase phase, int next_unit,
                            bool backward_begins_here) {
  strata_unit_context_t with = context(unit, to_abi(phase), next_unit);
  with.backward_begins_here = backward_begins_here ? 1 : 0;
  int32_t residency = STRATA_UNIT_KEPT;
  throw_if_error(strategy_.after_forward(with, &residency));
  apply_residency(unit, residency);
}

void Session::before_backward(int unit, int next_unit) {
  strata_unit_view_t view{};
  view.struct_size = sizeof(view);
  throw_if_error(strategy_.before_backward(context(unit, STRATA_PHASE_BACKWARD, next_unit), &view));
  bind(unit, view);
}

hooks::GradientTarget Session::gradient_target(int unit) {
  strata_gradient_target_t target{};
  target.struct_size = sizeof(target);
  const strata_unit_context_t with = context(unit, STRATA_PHASE_BACKWARD, hooks::kNoUnit);
  throw_if_error(strategy_.gradient_target(with, &target));
  if (target.ready != nullptr) throw_if_error(host_.wait(compute_, target.ready));
  return {target.data, to_torch(target.dtype), target.mode == STRATA_GRADIENT_ADD};
}

void Session::after_backward(int unit, int next_unit, std::span<const int> missing) {
  const std::vector<uint32_t> indices(missing.begin(), missing.end());
  strata_unit_context_t with = context(unit, STRATA_PHASE_BACKWARD, next_unit);
  with.missing_count = static_cast<uint32_t>(indices.size());
  with.missing = indices.data();
  int32_t residency = STRATA_UNIT_KEPT;
  throw_if_error(strategy_.after_backward(with, &residency));
  apply_residency(unit, residency);
}

}  // namespace strata::strategy
