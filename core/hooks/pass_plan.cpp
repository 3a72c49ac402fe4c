#include "strata/hooks/pass_plan.h"

#include <fmt/format.h>

#include "strata/hooks/unit_events.h"

namespace strata::hooks {
namespace {

using Kind = BackwardStep::Kind;

void mark_forward(PassPlan& plan, size_t unit_count) {
  std::vector<bool> is_seen(unit_count);
  for (PassPlan::Entry& entry : plan.entries) {
    entry.is_first = !is_seen[static_cast<size_t>(entry.unit)];
    is_seen[static_cast<size_t>(entry.unit)] = true;
  }
  is_seen.assign(unit_count, false);
  int next = kNoUnit;
  for (size_t i = plan.entries.size(); i-- > 0;) {
    PassPlan::Entry& entry = plan.entries[i];
    entry.is_last = !is_seen[static_cast<size_t>(entry.unit)];
    is_seen[static_cast<size_t>(entry.unit)] = true;
    entry.next_unit = next;
    if (entry.is_first) next = entry.unit;
  }
}

void list_backward(PassPlan& plan) {
  for (size_t i = plan.entries.size(); i-- > 0;) {
    PassPlan::Entry& entry = plan.entries[i];
    if (!entry.has_backward) continue;
    const auto add = [&](Kind kind) { plan.backward.push_back({kind, entry.unit, kNoUnit}); };
    const bool opens = entry.is_last;
    if (opens && entry.is_recomputed) add(Kind::kBeforeRecompute);
    if (opens && !entry.is_recomputed) add(Kind::kBeforeBackward);
    entry.steps_until_output = plan.backward.size();
    if (opens && entry.is_recomputed) {
      add(Kind::kAfterRecompute);
      add(Kind::kBeforeBackward);
    }
    entry.steps_until_gradients = plan.backward.size();
    if (entry.is_first) add(Kind::kAfterBackward);
  }
}

void hint_backward(PassPlan& plan, const std::vector<bool>& is_recomputed) {
  int next = kNoUnit;
  for (size_t i = plan.backward.size(); i-- > 0;) {
    BackwardStep& step = plan.backward[i];
    step.next_unit = next;
    const Kind gathers = is_recomputed[static_cast<size_t>(step.unit)] ? Kind::kBeforeRecompute
                                                                       : Kind::kBeforeBackward;
    if (step.kind == gathers) next = step.unit;
  }
}

}  // namespace

Status check_order(std::span<const int> order, std::span<const std::string> unit_names) {
  if (order.empty()) {
    return invalid_argument(
        "hooks: the declared order has no entry. HINT: list every unit in "
        "ModelSpec::order, as forward enters them");
  }
  std::vector<bool> is_entered(unit_names.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || static_cast<size_t>(order[i]) >= unit_names.size()) {
      return invalid_argument(
          fmt::format("hooks: entry {} of the declared order is unit {}, but "
                      "the model has {} units. HINT: units count from 0",
                      i, order[i], unit_names.size()));
    }
    is_entered[static_cast<size_t>(order[i])] = true;
  }
  for (size_t u = 0; u < unit_names.size(); ++u) {
    if (is_entered[u]) continue;
    return invalid_argument(
        fmt::format("hooks: unit '{}' is not in the declared order of {} entries. HINT: add it to "
                    "ModelSpec::order, or put its parameters into a unit that is entered",
                    unit_names[u], order.size()));
  }
  return {};
}

std::vector<bool> find_backward(std::span<const int> order, const std::vector<bool>& is_trained) {
  std::vector<bool> has_backward = is_trained;
  bool is_behind_trained = false;
  for (const int unit : order) {
    const auto u = static_cast<size_t>(unit);
    if (is_behind_trained) has_backward[u] = true;
    is_behind_trained = is_behind_trained || is_trained[u];
  }
  return has_backward;
}

PassPlan make_pass_plan(std::span<const int> order, const std::vector<bool>& has_backward,
                        const std::vector<bool>& is_recomputed) {
  PassPlan plan;
  for (const int unit : order) {
    PassPlan::Entry entry;
    entry.unit = unit;
    entry.has_backward = has_backward[static_cast<size_t>(unit)];
    entry.is_recomputed = entry.has_backward && is_recomputed[static_cast<size_t>(unit)];
    plan.entries.push_back(entry);
  }
  mark_forward(plan, is_recomputed.size());
  list_backward(plan);
  hint_backward(plan, is_recomputed);
  return plan;
}

}  // namespace strata::hooks
