// Turns one forward and its backward into unit events, in an order that depends on the declared
// order alone.
//
// One micro-batch:
//   graph.begin(Phase::kForward);
//   x = graph.enter(0, ids, embed); x = graph.enter(1, x, block); y = graph.enter(0, x, head);
//   graph.backward(loss(y));
//
// Events of that, with R = units that are recomputed:
//   forward    before_forward(0) before_forward(1) after_forward(1) after_forward(0)
//   backward   [before_forward(0, kRecompute) after_forward(0, kRecompute) if 0 is in R]
//              before_backward(0) gradient_target(0)
//              [the same two if 1 is in R] before_backward(1) gradient_target(1) after_backward(1)
//              after_backward(0)
//
// A unit that is entered more than once (tied weights) stays gathered from its first to its last
// entry, in both directions. The events are the same on every rank whatever got a gradient:
// parameters without one are named to after_backward, and units that no gradient reached get their
// events when autograd returns. Frozen units in front of everything that is trained have no
// backward, and no events there; their input may not require a gradient (refused in enter()).
//
// Gradients go from autograd straight into the memory of UnitEvents::gradient_target, so `.grad` of
// a parameter never exists. Refused with a StatusError: create_graph, sparse gradients, a backward
// that does not come from backward().
//
// Mistakes and failing events throw StatusError. Afterwards the pass is lost: reset() makes the
// graph usable again.
#ifndef STRATA_HOOKS_UNIT_GRAPH_H_
#define STRATA_HOOKS_UNIT_GRAPH_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/hooks/backward_walk.h"
#include "strata/hooks/pass_plan.h"
#include "strata/hooks/unit_events.h"
#include "strata/hooks/unit_runner.h"
#include "strata/model/unit_storage.h"

namespace strata::hooks {

class UnitGraph final : public UnitRunner {
 public:
  // `order` as in model::ModelSpec. Units and events outlive the graph. The graph owns the hooks of
  // the units' parameters until it is destroyed.
  //
  // Throws StatusError(kInvalidArgument) if the order is empty, names a unit that is not there, or
  // leaves one out.
  UnitGraph(std::vector<int> order, std::vector<model::UnitStorage*> units, UnitEvents& events);
  UnitGraph(const UnitGraph&) = delete;
  UnitGraph& operator=(const UnitGraph&) = delete;
  ~UnitGraph() override;

  // Begins a pass: kForward, which backward() ends, or kInference, which the last entry ends.
  //
  // Throws StatusError(kState) if the pass before was not ended; reset() gives it up.
  void begin(Phase phase);

  // The next entry. In kInference gradients are off.
  //
  // Throws StatusError(kState) if `unit` is not the next of the declared order (the message names
  // both), outside of a pass, inside another entry's body, or if gradients are off in kForward;
  // passes on what events and `body` throw.
  at::Tensor enter(int unit, const at::Tensor& input, const Body& body) override;

  // Runs autograd on the calling thread from a loss of one element, frees its graph, and returns
  // when all units had their after_backward. A loss that does not require a gradient is legal: all
  // parameters are missing then.
  //
  // Throws StatusError(kState) if the forward is not complete, or if a unit's weights were written
  // since its forward (weight epochs; the message names the unit); passes on what events throw.
  void backward(const at::Tensor& loss);

  // Gives up the pass that is running or failed. Calls no events; a backward of a loss from before
  // it is refused.
  void reset();

  // Activation checkpointing: entries of these units keep their input only and compute again in
  // backward, with the random numbers of forward. Their bodies may use no other tensor that
  // requires a gradient (refused in backward). An empty function: none. Between passes only, else
  // StatusError(kState).
  void set_recompute(const std::function<bool(int unit)>& is_recomputed);

  // For set_recompute: units 0, every, 2 * every, ...  1 is all of them, 0 none.
  static std::function<bool(int unit)> every(int every);

 private:
  enum class State {
    kIdle,            // between passes
    kInForward,       // entries may come
    kBusy,            // inside an entry or backward
    kAwaitsBackward,  // forward is complete; activations live
    kFailed,          // until reset()
  };
  class FailurePoint;

  at::Tensor compute_with_hooks(const PassPlan::Entry& entry, const at::Tensor& input,
                                const Body& body);
  at::Tensor compute_without_gradients(const at::Tensor& input, const Body& body);
  void check_idle(const char* what) const;
  void check_entry(int unit) const;
  void check_complete() const;
  std::string describe(int unit) const;

  std::vector<int> order_;
  std::vector<bool> has_backward_;  // per unit
  std::unique_ptr<WalkContext> context_;
  std::shared_ptr<BackwardWalk> walk_;  // in a pass of kForward
  State state_ = State::kIdle;
  Phase phase_ = Phase::kInference;
  size_t next_entry_ = 0;
};

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_UNIT_GRAPH_H_
