#include "strata/hooks/backward_walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "strata/base/status.h"

namespace strata::hooks {

BackwardWalk::BackwardWalk(WalkContext& context)
    : context_(context), epochs_(context.units.size()) {}

BackwardWalk::~BackwardWalk() {
  for (const auto& sink : context_.sinks) {
    if (sink != nullptr) sink->abandon();
  }
}

void BackwardWalk::stamp(int unit) {
  epochs_[static_cast<size_t>(unit)] = context_.units[static_cast<size_t>(unit)]->epoch();
}

void BackwardWalk::finish() {
  advance(context_.plan.backward.size());
  is_running_ = false;
}

void BackwardWalk::output_gradient_is_ready(int index) {
  check_running(index);
  if (recomputed_entry_ != kNone) {
    const auto name = [&](int of) {
      return context_.units[static_cast<size_t>(entry(of).unit)]->spec().name;
    };
    throw StatusError(unsupported(fmt::format(
        "hooks: the body of entry {} (unit '{}') is recomputed, but uses the output of entry {} "
        "(unit '{}') beside its input. HINT: pass it as the input, or do not recompute this unit",
        recomputed_entry_, name(recomputed_entry_), index, name(index))));
  }
  advance(entry(index).steps_until_output);
}

void BackwardWalk::begin_recompute(int index) {
  check_running(index);
  advance(entry(index).steps_until_output);
  recomputed_entry_ = index;
}

void BackwardWalk::recompute_is_done(int index) { advance(entry(index).steps_until_gradients); }

const PassPlan::Entry& BackwardWalk::entry(int index) const {
  return context_.plan.entries[static_cast<size_t>(index)];
}

void BackwardWalk::advance(size_t steps) {
  while (done_ < steps) run(context_.plan.backward[done_++]);
}

void BackwardWalk::run(const BackwardStep& step) {
  UnitEvents& events = *context_.events;
  GradientSink* sink = context_.sinks[static_cast<size_t>(step.unit)].get();
  switch (step.kind) {
    case BackwardStep::Kind::kBeforeRecompute:
      check_epoch(step.unit);
      events.before_forward(step.unit, Phase::kRecompute, step.next_unit);
      break;
    case BackwardStep::Kind::kAfterRecompute:
      events.after_forward(step.unit, Phase::kRecompute, step.next_unit, false);
      break;
    case BackwardStep::Kind::kBeforeBackward:
      check_epoch(step.unit);
      events.before_backward(step.unit, step.next_unit);
      if (sink != nullptr) {
        sink->open(events.gradient_target(step.unit), is_recomputed_at_several_entries(step.unit));
      }
      break;
    case BackwardStep::Kind::kAfterBackward:
      events.after_backward(step.unit, step.next_unit,
                            sink != nullptr ? sink->close() : std::span<const int>());
      break;
  }
}

bool BackwardWalk::is_recomputed_at_several_entries(int unit) const {
  const auto& entries = context_.plan.entries;
  return std::count_if(entries.begin(), entries.end(), [&](const PassPlan::Entry& of) {
           return of.unit == unit && of.is_recomputed;
         }) > 1;
}

void BackwardWalk::check_epoch(int unit) const {
  const model::UnitStorage& storage = *context_.units[static_cast<size_t>(unit)];
  const uint64_t forward = epochs_[static_cast<size_t>(unit)];
  if (storage.epoch() == forward) return;
  throw StatusError(wrong_state(fmt::format(
      "hooks: the weights of unit '{}' were written between its forward (epoch {}) and its "
      "backward (epoch {}), so its gradients would be wrong. HINT: update or load weights only "
      "when backward has returned",
      storage.spec().name, forward, storage.epoch())));
}

void BackwardWalk::check_running(int index) const {
  if (is_running_) return;
  throw StatusError(wrong_state(fmt::format(
      "hooks: the backward of entry {} (unit '{}') was begun outside of UnitGraph::backward. "
      "HINT: call UnitGraph::backward(loss), not loss.backward()",
      index, context_.units[static_cast<size_t>(entry(index).unit)]->spec().name)));
}

}  // namespace strata::hooks
