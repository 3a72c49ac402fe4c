#include "tests/world/toy_host.h"

#include <cstring>

#include "tests/world/toy_dtypes.h"

namespace strata::tests {
namespace {

constexpr uint32_t kNone = STRATA_NONE;

template <typename T>
T sized() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

}  // namespace

ToyHost::ToyHost(RankOfTest& rank, const plugin::ResolvedStrategy& strategy, const ToyModel& model,
                 const ToyTraining& training, const std::vector<Weights>& reference,
                 bool is_checked)
    : rank_(rank),
      resolved_(strategy),
      model_(model),
      training_(training),
      reference_(reference),
      is_checked_(is_checked),
      description_(model),
      units_(model.units.size()) {}

// ---- life ----

Status ToyHost::create() {
  STRATA_ASSIGN_OR_RETURN(
      plugin::StrategyInstance made,
      plugin::StrategyInstance::create(resolved_, rank_.world, {STRATA_DEVICE_CPU, 0},
                                       rank_.host->abi(), is_checked_));
  strategy_ = std::make_unique<plugin::StrategyInstance>(std::move(made));
  return {};
}

Status ToyHost::attach() {
  if (strategy_ == nullptr) STRATA_RETURN_IF_ERROR(create());
  std::vector<strata_layout_t> layouts;
  for (uint32_t u = 0; u < model_.units.size(); ++u) {
    layouts.push_back(sized<strata_layout_t>());
    STRATA_RETURN_IF_ERROR(strategy_->layout(description_.unit(u), &layouts.back()));
  }
  description_.lay_out(layouts);
  STRATA_RETURN_IF_ERROR(strategy_->attach(description_.model()));
  partitions_.clear();
  for (uint32_t i = 0; i < strategy_->partition_count(); ++i) {
    partitions_.push_back(sized<strata_partition_t>());
    STRATA_RETURN_IF_ERROR(strategy_->partition(i, &partitions_.back()));
  }
  is_updated_.assign(partitions_.size(), false);
  return {};
}

Status ToyHost::initialise() {
  for (uint32_t u = 0; u < units_.size(); ++u) {
    auto view = sized<strata_unit_view_t>();
    STRATA_RETURN_IF_ERROR(strategy_->open_unit(u, STRATA_INTENT_WRITE, &view));
    auto* data = static_cast<float*>(view.data);
    const uint64_t numel = description_.unit(u).numel;
    if (numel > 0) std::memset(data, 0, numel * sizeof(float));
    for (uint32_t p = 0; p < model_.units[u].parameters.size(); ++p) {
      const std::vector<float>& from = reference_[0][u][p];
      std::copy(from.begin(), from.end(), data + description_.offset(u, p));
    }
    STRATA_RETURN_IF_ERROR(strategy_->close_unit(u));
  }
  return {};
}

Status ToyHost::read_back(uint32_t step) {
  for (uint32_t u = 0; u < units_.size(); ++u) {
    auto view = sized<strata_unit_view_t>();
    STRATA_RETURN_IF_ERROR(strategy_->open_unit(u, STRATA_INTENT_READ, &view));
    if (view.ready != nullptr) {
      STRATA_RETURN_IF_ERROR(host().wait(host().compute_stream(), view.ready));
    }
    expect_weights(u, view.data, STRATA_DTYPE_F32, step, "open_unit");
    STRATA_RETURN_IF_ERROR(strategy_->close_unit(u));
  }
  return {};
}

Status ToyHost::detach() {
  STRATA_RETURN_IF_ERROR(strategy_->quiesce());
  return strategy_->detach();
}

// ---- one step ----

Status ToyHost::step(uint32_t step, const ToyPasses& passes) {
  for (uint32_t i = 0; i < passes.inferences; ++i) STRATA_RETURN_IF_ERROR(infer(step, passes));
  for (uint32_t m = 0; m < training_.accumulation; ++m) {
    STRATA_RETURN_IF_ERROR(micro_batch(step, m, passes));
  }
  return update();
}

Status ToyHost::micro_batch(uint32_t step, uint32_t micro_batch, const ToyPasses& passes) {
  STRATA_RETURN_IF_ERROR(forward(STRATA_PHASE_FORWARD, step, micro_batch, passes));
  STRATA_RETURN_IF_ERROR(backward(step, micro_batch, passes));
  const bool is_last = micro_batch + 1 == training_.accumulation;
  STRATA_RETURN_IF_ERROR(strategy_->end_backward(is_last ? 1 : 0));
  if (is_last) read_gradients();
  return {};
}

// As a host that computes the norm: behind end_backward, in front of before_step.
void ToyHost::read_gradients() {
  gradients_.assign(partitions_.size(), {});
  for (size_t i = 0; i < partitions_.size(); ++i) {
    const strata_partition_t& from = partitions_[i];
    if (from.gradient == nullptr) continue;
    gradients_[i] = load(from.gradient, 0, from.numel, from.gradient_dtype);
  }
}

Status ToyHost::infer(uint32_t step, const ToyPasses& passes) {
  return forward(STRATA_PHASE_INFERENCE, step, 0, passes);
}

Status ToyHost::update() {
  STRATA_RETURN_IF_ERROR(strategy_->before_step());
  for (size_t i = 0; i < partitions_.size(); ++i) {
    if (partitions_[i].trainable == 0 || is_updated_[i]) continue;
    update_partition(partitions_[i], gradients_[i]);
  }
  is_updated_.assign(partitions_.size(), false);
  return strategy_->after_step(1);
}

void ToyHost::update_partition(const strata_partition_t& partition,
                               const std::vector<float>& gradient) {
  auto* master = static_cast<float*>(partition.master);
  for (uint64_t i = 0; i < partition.numel; ++i) {
    master[i] = updated_weight(master[i], gradient[i]);
  }
}

strata_unit_context_t ToyHost::context(uint32_t unit, int32_t phase, uint32_t micro_batch,
                                       uint32_t next_unit, const ToyPasses& passes) {
  auto context = sized<strata_unit_context_t>();
  context.unit = unit;
  context.phase = phase;
  context.next_unit = passes.hint != nullptr ? passes.hint(next_unit, calls_++) : next_unit;
  context.micro_batch = micro_batch;
  context.sync = phase == STRATA_PHASE_INFERENCE || micro_batch + 1 == training_.accumulation;
  context.compute = rank_.host->compute_stream();
  return context;
}

uint32_t ToyHost::next_in_forward(uint32_t entry) const {
  for (uint32_t e = entry + 1; e < model_.order.size(); ++e) {
    if (model_.first_entry(model_.order[e]) == e) return model_.order[e];
  }
  return kNone;
}

uint32_t ToyHost::next_in_backward(uint32_t entry) const {
  for (uint32_t e = entry; e-- > 0;) {
    const uint32_t u = model_.order[e];
    if (model_.last_entry(u) == e && model_.has_backward(u)) return u;
  }
  return kNone;
}

// ---- passes ----

Status ToyHost::take_view(uint32_t unit, const strata_unit_view_t& view, uint32_t step) {
  if (view.ready != nullptr) {
    STRATA_RETURN_IF_ERROR(host().wait(host().compute_stream(), view.ready));
  }
  units_[unit].view = view.data;
  EXPECT_EQ(view.dtype, model_.units[unit].dtypes.compute);
  expect_view(unit, step, "a pass");
  return {};
}

Status ToyHost::forward(int32_t phase, uint32_t step, uint32_t micro_batch,
                        const ToyPasses& passes) {
  for (uint32_t e = 0; e < model_.order.size(); ++e) {
    const uint32_t u = model_.order[e];
    const uint32_t next = next_in_forward(e);
    if (model_.first_entry(u) == e) {
      auto view = sized<strata_unit_view_t>();
      STRATA_RETURN_IF_ERROR(
          strategy_->before_forward(context(u, phase, micro_batch, next, passes), &view));
      STRATA_RETURN_IF_ERROR(take_view(u, view, step));
    }
    if (model_.last_entry(u) != e) continue;
    expect_view(u, step, "the end of forward");
    auto with = context(u, phase, micro_batch, next, passes);
    const bool is_end = e + 1 == model_.order.size();
    with.backward_begins_here = is_end && phase == STRATA_PHASE_FORWARD ? 1 : 0;
    int32_t residency = 0;
    STRATA_RETURN_IF_ERROR(strategy_->after_forward(with, &residency));
    if (residency == STRATA_UNIT_RELEASED) units_[u].view = nullptr;
  }
  return {};
}

Status ToyHost::backward(uint32_t step, uint32_t micro_batch, const ToyPasses& passes) {
  for (uint32_t e = static_cast<uint32_t>(model_.order.size()); e-- > 0;) {
    const uint32_t u = model_.order[e];
    if (!model_.has_backward(u)) continue;
    const uint32_t next = next_in_backward(e);
    if (model_.last_entry(u) == e) {
      STRATA_RETURN_IF_ERROR(open_backward(u, step, micro_batch, next, passes));
    }
    if (model_.first_entry(u) == e) {
      STRATA_RETURN_IF_ERROR(close_backward(u, step, micro_batch, next, passes));
    }
  }
  return {};
}

Status ToyHost::open_backward(uint32_t u, uint32_t step, uint32_t micro_batch, uint32_t next,
                              const ToyPasses& passes) {
  auto view = sized<strata_unit_view_t>();
  if (passes.recomputed.contains(u)) {
    const auto with = context(u, STRATA_PHASE_RECOMPUTE, micro_batch, next, passes);
    STRATA_RETURN_IF_ERROR(strategy_->before_forward(with, &view));
    STRATA_RETURN_IF_ERROR(take_view(u, view, step));
    int32_t residency = 0;
    STRATA_RETURN_IF_ERROR(strategy_->after_forward(with, &residency));
    EXPECT_EQ(residency, STRATA_UNIT_KEPT);
  }
  const auto with = context(u, STRATA_PHASE_BACKWARD, micro_batch, next, passes);
  STRATA_RETURN_IF_ERROR(strategy_->before_backward(with, &view));
  STRATA_RETURN_IF_ERROR(take_view(u, view, step));
  if (!model_.units[u].is_trainable()) return {};
  auto target = sized<strata_gradient_target_t>();
  STRATA_RETURN_IF_ERROR(strategy_->gradient_target(with, &target));
  if (target.ready != nullptr) {
    STRATA_RETURN_IF_ERROR(host().wait(host().compute_stream(), target.ready));
  }
  const int32_t dtype = model_.units[u].dtypes.accumulate;
  EXPECT_EQ(target.dtype, dtype);
  units_[u].target = target.data;
  units_[u].is_adding = target.mode == STRATA_GRADIENT_ADD;
  if (!units_[u].is_adding) {
    std::memset(units_[u].target, 0, description_.unit(u).numel * size_of(dtype));
  }
  write_gradient(u, moment(step, micro_batch), 0);
  return {};
}

Status ToyHost::close_backward(uint32_t u, uint32_t step, uint32_t micro_batch, uint32_t next,
                               const ToyPasses& passes) {
  expect_view(u, step, "the end of backward");
  auto with = context(u, STRATA_PHASE_BACKWARD, micro_batch, next, passes);
  std::vector<uint32_t> missing;
  if (model_.units[u].is_trainable()) {
    write_gradient(u, moment(step, micro_batch), 1);
    for (uint32_t p = 0; p < model_.units[u].parameters.size(); ++p) {
      if (is_missing(moment(step, micro_batch), u, p)) missing.push_back(p);
    }
  }
  with.missing_count = static_cast<uint32_t>(missing.size());
  with.missing = missing.data();
  int32_t residency = 0;
  STRATA_RETURN_IF_ERROR(strategy_->after_backward(with, &residency));
  if (residency == STRATA_UNIT_RELEASED) units_[u].view = nullptr;
  if (!passes.updates_early || with.sync == 0) return {};
  for (size_t i = 0; i < partitions_.size(); ++i) {
    if (partitions_[i].unit != u || partitions_[i].gradient_ready == nullptr) continue;
    STRATA_RETURN_IF_ERROR(host().synchronize(partitions_[i].gradient_ready, "an early update"));
    const strata_partition_t& of = partitions_[i];
    update_partition(of, load(of.gradient, 0, of.numel, of.gradient_dtype));
    is_updated_[i] = true;
  }
  return {};
}

// ---- numbers ----

Moment ToyHost::moment(uint32_t step, uint32_t micro_batch) const {
  return {static_cast<uint32_t>(rank_.world.rank), step, micro_batch};
}

bool ToyHost::is_missing(const Moment& moment, uint32_t unit, uint32_t parameter) const {
  return training_.is_missing != nullptr && training_.is_missing(moment, unit, parameter);
}

void ToyHost::write_gradient(uint32_t u, const Moment& moment, int part) {
  const ToyDtypes& dtypes = model_.units[u].dtypes;
  for (uint32_t p = 0; p < model_.units[u].parameters.size(); ++p) {
    if (!model_.units[u].parameters[p].is_trainable || is_missing(moment, u, p)) continue;
    const uint64_t offset = description_.offset(u, p);
    const uint64_t numel = reference_[0][u][p].size();
    const std::vector<float> weight = load(units_[u].view, offset, numel, dtypes.compute);
    std::vector<float> sum = load(units_[u].target, offset, numel, dtypes.accumulate);
    for (uint64_t i = 0; i < numel; ++i) {
      float added = gradient_part(moment, {u, p, i}, part, weight[i]);
      if (training_.bend != nullptr) added = training_.bend(moment, {u, p, i}, added);
      sum[i] = part == 0 && !units_[u].is_adding ? added : sum[i] + added;
    }
    store(units_[u].target, offset, sum, dtypes.accumulate);
  }
}

void ToyHost::expect_weights(uint32_t u, const void* data, int32_t dtype, uint32_t step,
                             const char* where) const {
  if (!expects_weights_) return;
  for (uint32_t p = 0; p < model_.units[u].parameters.size(); ++p) {
    std::vector<float> expected = reference_[step][u][p];
    for (float& value : expected) value = rounded(value, dtype);
    const std::vector<float> found = load(data, description_.offset(u, p), expected.size(), dtype);
    if (std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0) continue;
    size_t at = 0;
    while (std::memcmp(&expected[at], &found[at], sizeof(float)) == 0) ++at;
    ADD_FAILURE() << "rank " << rank_.world.rank << ", step " << step << ", " << where << ": "
                  << model_.units[u].parameters[p].name << "[" << at << "] is " << found[at]
                  << ", not " << expected[at];
  }
}

void ToyHost::expect_view(uint32_t u, uint32_t step, const char* where) const {
  const int32_t dtype = model_.units[u].dtypes.compute;
  expect_weights(u, units_[u].view, dtype, step, where);
  if (!expects_weights_) return;
  uint64_t end = 0;  // of the parameters so far
  const auto expect_zeros = [&](uint64_t last) {
    for (const float value : load(units_[u].view, end, last - end, dtype)) {
      if (value == 0) continue;
      ADD_FAILURE() << "rank " << rank_.world.rank << ", step " << step << ", " << where << ": "
                    << model_.units[u].name << " has " << value << " in its padding";
      return;
    }
  };
  for (uint32_t p = 0; p < model_.units[u].parameters.size(); ++p) {
    expect_zeros(description_.offset(u, p));
    end = description_.offset(u, p) + reference_[0][u][p].size();
  }
  expect_zeros(description_.unit(u).numel);
}

namespace {

void expect_training(const std::string& strategy, const ToyModel& model,
                     const ToyTraining& training, const ToyPasses& passes,
                     const std::vector<Weights>& reference) {
  const plugin::ResolvedStrategy resolved = find_strategy(strategy);
  run_ranks(static_cast<int>(training.world), [&](RankOfTest& rank) {
    ToyHost host(rank, resolved, model, training, reference);
    const auto run = [&]() -> Status {
      STRATA_RETURN_IF_ERROR(host.attach());
      STRATA_RETURN_IF_ERROR(host.initialise());
      STRATA_RETURN_IF_ERROR(host.read_back(0));
      for (uint32_t step = 0; step < training.steps; ++step) {
        STRATA_RETURN_IF_ERROR(host.step(step, passes));
      }
      STRATA_RETURN_IF_ERROR(host.read_back(training.steps));
      return host.detach();
    };
    const Status status = run();
    EXPECT_TRUE(status.ok()) << strategy << ", rank " << rank.world.rank << " of " << training.world
                             << ": " << status.message();
    const device::MemoryStats left = rank.host->memory_stats();
    if (!status.ok()) return;
    EXPECT_EQ(left.used_total, 0u) << strategy << " keeps memory behind detach";
  });
}

}  // namespace

void expect_training(const std::string& strategy, const ToyModel& model,
                     const ToyTraining& training, const ToyPasses& passes) {
  expect_trainings({strategy}, model, training, passes);
}

void expect_trainings(const std::vector<std::string>& strategies, const ToyModel& model,
                      const ToyTraining& training, const ToyPasses& passes) {
  const auto reference = train_reference(model, training);
  for (const std::string& strategy : strategies) {
    SCOPED_TRACE(strategy);
    expect_training(strategy, model, training, passes, reference);
  }
}

}  // namespace strata::tests
