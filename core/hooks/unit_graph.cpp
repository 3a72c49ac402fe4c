#include "strata/hooks/unit_graph.h"

#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>

#include "strata/base/status.h"
#include "strata/hooks/recompute.h"

namespace strata::hooks {
namespace {

std::vector<std::string> names_of(const std::vector<model::UnitStorage*>& units) {
  std::vector<std::string> names;
  for (const model::UnitStorage* unit : units) names.push_back(unit->spec().name);
  return names;
}

// With multithreading off, autograd runs on the calling thread alone, and so do all events.
class SingleThreadedAutograd {
 public:
  SingleThreadedAutograd() : was_on_(state().get_multithreading_enabled()) {
    state().set_multithreading_enabled(false);
  }
  SingleThreadedAutograd(const SingleThreadedAutograd&) = delete;
  SingleThreadedAutograd& operator=(const SingleThreadedAutograd&) = delete;
  ~SingleThreadedAutograd() { state().set_multithreading_enabled(was_on_); }

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool was_on_;
};

}  // namespace

// A scope that fails the pass unless done() was said.
class UnitGraph::FailurePoint {
 public:
  explicit FailurePoint(UnitGraph& graph) : graph_(graph), state_(graph.state_) {
    graph_.state_ = State::kBusy;
  }
  FailurePoint(const FailurePoint&) = delete;
  FailurePoint& operator=(const FailurePoint&) = delete;
  ~FailurePoint() {
    if (is_done_) return;
    graph_.walk_.reset();
    graph_.state_ = State::kFailed;
  }
  void done() { done(state_); }
  void done(State state) {
    graph_.state_ = state;
    is_done_ = true;
  }

 private:
  UnitGraph& graph_;
  State state_;
  bool is_done_ = false;
};

UnitGraph::UnitGraph(std::vector<int> order, std::vector<model::UnitStorage*> units,
                     UnitEvents& events)
    : order_(std::move(order)), context_(std::make_unique<WalkContext>()) {
  const Status status = check_order(order_, names_of(units));
  if (!status.ok()) throw StatusError(status);
  std::vector<bool> is_trained;
  for (const model::UnitStorage* unit : units) {
    is_trained.push_back(unit->spec().is_trainable());
    context_->sinks.push_back(is_trained.back() ? std::make_unique<GradientSink>(*unit) : nullptr);
  }
  has_backward_ = find_backward(order_, is_trained);
  context_->plan =
      make_pass_plan(order_, has_backward_, std::vector<bool>(units.size(), false));
  context_->units = std::move(units);
  context_->events = &events;
}

UnitGraph::~UnitGraph() = default;

void UnitGraph::begin(Phase phase) {
  check_idle("a new pass");
  if (phase == Phase::kRecompute) {
    throw StatusError(invalid_argument(
        "hooks: a pass cannot begin in phase kRecompute. HINT: kForward or kInference"));
  }
  phase_ = phase;
  next_entry_ = 0;
  state_ = State::kInForward;
  walk_ = phase == Phase::kForward ? std::make_shared<BackwardWalk>(*context_) : nullptr;
}

at::Tensor UnitGraph::enter(int unit, const at::Tensor& input, const Body& body) {
  check_entry(unit);
  FailurePoint failure(*this);
  const PassPlan::Entry& entry = context_->plan.entries[next_entry_];
  if (entry.is_first) {
    context_->events->before_forward(unit, phase_, entry.next_unit);
    if (walk_ != nullptr) walk_->stamp(unit);
  }
  at::Tensor output = phase_ == Phase::kForward ? compute_with_hooks(entry, input, body)
                                                : compute_without_gradients(input, body);
  const bool is_end = ++next_entry_ == context_->plan.entries.size();
  if (entry.is_last) {
    context_->events->after_forward(unit, phase_, entry.next_unit,
                                    is_end && phase_ == Phase::kForward);
  }
  if (!is_end) {
    failure.done();
  } else {
    failure.done(phase_ == Phase::kForward ? State::kAwaitsBackward : State::kIdle);
  }
  return output;
}

at::Tensor UnitGraph::compute_without_gradients(const at::Tensor& input, const Body& body) {
  const c10::AutoGradMode gradients_off(false);
  return body(input);
}

at::Tensor UnitGraph::compute_with_hooks(const PassPlan::Entry& entry, const at::Tensor& input,
                                         const Body& body) {
  const int index = static_cast<int>(next_entry_);
  const model::UnitStorage& unit = *context_->units[static_cast<size_t>(entry.unit)];
  const bool has_gradient = unit.spec().is_trainable() || input.requires_grad();
  const std::weak_ptr<BackwardWalk> walk = walk_;
  at::Tensor output = entry.is_recomputed && has_gradient
                          ? run_recomputed(input, body, walk, index, unit.device())
                          : body(input);
  if (!output.defined()) {
    throw StatusError(invalid_argument(
        fmt::format("hooks: the body of entry {} (unit '{}') returned no tensor. HINT: return the "
                    "input of the next entry",
                    index, unit.spec().name)));
  }
  if (output.requires_grad() && !entry.has_backward) {
    throw StatusError(unsupported(fmt::format(
        "hooks: entry {} (unit '{}') is frozen and in front of everything that is trained, so it "
        "has no backward, but its output requires a gradient. HINT: detach its input, or train a "
        "parameter of this unit",
        index, unit.spec().name)));
  }
  if (output.requires_grad()) {
    output.register_hook([walk, index](const at::Tensor&) {
      const std::shared_ptr<BackwardWalk> alive = walk.lock();
      if (alive == nullptr) throw_pass_is_over();
      alive->output_gradient_is_ready(index);
    });
  }
  return output;
}

void UnitGraph::backward(const at::Tensor& loss) {
  check_complete();
  if (!loss.defined() || loss.numel() != 1) {
    throw StatusError(invalid_argument(
        fmt::format("hooks: the loss has {} elements. HINT: reduce it to one by sum() or mean()",
                    loss.defined() ? loss.numel() : 0)));
  }
  FailurePoint failure(*this);
  walk_->start();
  if (loss.requires_grad()) {
    const SingleThreadedAutograd on_this_thread;
    torch::autograd::backward({loss}, {}, /*retain_graph=*/false, /*create_graph=*/false);
  }
  walk_->finish();
  walk_.reset();
  failure.done(State::kIdle);
}

void UnitGraph::reset() {
  walk_.reset();
  next_entry_ = 0;
  state_ = State::kIdle;
}

void UnitGraph::set_recompute(const std::function<bool(int unit)>& is_recomputed) {
  check_idle("a change of what is recomputed");
  std::vector<bool> units(context_->units.size(), false);
  for (size_t u = 0; is_recomputed != nullptr && u < units.size(); ++u) {
    units[u] = is_recomputed(static_cast<int>(u));
  }
  context_->plan = make_pass_plan(order_, has_backward_, units);
}

std::function<bool(int unit)> UnitGraph::every(int every) {
  return [every](int unit) { return every > 0 && unit % every == 0; };
}

void UnitGraph::check_idle(const char* what) const {
  if (state_ == State::kIdle) return;
  throw StatusError(
      wrong_state(fmt::format("hooks: {} is asked for, but the pass before it {} (after {} of {} "
                              "entries). HINT: finish it, "
                              "or give it up by UnitGraph::reset()",
                              what, state_ == State::kFailed ? "failed" : "has not ended",
                              next_entry_, context_->plan.entries.size())));
}

void UnitGraph::check_entry(int unit) const {
  if (state_ != State::kInForward) {
    throw StatusError(
        wrong_state(fmt::format("hooks: unit {} is entered {}. HINT: UnitGraph::begin() begins a "
                                "pass of {} entries; bodies "
                                "enter nothing themselves",
                                describe(unit),
                                state_ == State::kBusy     ? "inside the body of another entry"
                                : state_ == State::kFailed ? "in a pass that failed"
                                                           : "outside of a pass",
                                context_->plan.entries.size())));
  }
  const int expected = context_->plan.entries[next_entry_].unit;
  if (unit != expected) {
    throw StatusError(wrong_state(
        fmt::format("hooks: entry {} of this pass is unit {}, but the declared order expects unit "
                    "{}. HINT: enter units as ModelSpec::order says, or change it",
                    next_entry_, describe(unit), describe(expected))));
  }
  if (phase_ == Phase::kForward && !c10::GradMode::is_enabled()) {
    throw StatusError(wrong_state(
        fmt::format("hooks: unit {} is entered in phase kForward with gradients off. HINT: no "
                    "NoGradGuard around a forward that a backward follows, or phase kInference",
                    describe(unit))));
  }
}

void UnitGraph::check_complete() const {
  if (state_ == State::kAwaitsBackward) return;
  throw StatusError(wrong_state(fmt::format(
      "hooks: backward is asked for, but {} (after {} of {} entries). HINT: begin(kForward), then "
      "all entries of the declared order, then backward once",
      state_ == State::kFailed      ? "the pass failed"
      : state_ == State::kInForward ? "the forward is not complete"
                                    : "no forward awaits it",
      next_entry_, context_->plan.entries.size())));
}

std::string UnitGraph::describe(int unit) const {
  if (unit < 0 || static_cast<size_t>(unit) >= context_->units.size()) {
    return fmt::format("{} (of {})", unit, context_->units.size());
  }
  return fmt::format("'{}'", context_->units[static_cast<size_t>(unit)]->spec().name);
}

}  // namespace strata::hooks
