// The backward of one micro-batch: walks the steps of its plan, in their order, as far as autograd
// has come.
//
// Note [Boundary hooks]
// Autograd runs the operators of entry k+1 before those of entry k (later ones first, parameters'
// leaves at once). So when the gradient of entry k's output is there, all gradients of entry k+1
// are written. One hook on that output does the steps between the two: after_backward(k+1), then
// before_backward(k). The first entry's input has no gradient: its steps are done when autograd
// returns. A hook that does not run (a frozen prefix, an output that nobody used) costs nothing:
// the next one, or the end, does its steps too. So the sequence of events is that of the plan,
// whatever got a gradient.
#ifndef STRATA_HOOKS_BACKWARD_WALK_H_
#define STRATA_HOOKS_BACKWARD_WALK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "strata/hooks/gradient_sink.h"
#include "strata/hooks/pass_plan.h"
#include "strata/hooks/unit_events.h"
#include "strata/model/unit_storage.h"

namespace strata::hooks {

// What the walks of one graph share.
struct WalkContext {
  PassPlan plan;
  std::vector<model::UnitStorage*> units;
  std::vector<std::unique_ptr<GradientSink>> sinks;  // null for frozen units
  UnitEvents* events = nullptr;
};

// Hooks and recomputations in autograd's graph refer to it weakly: it lives from begin of the
// forward to the end of backward, and belongs to the thread of its graph.
class BackwardWalk {
 public:
  explicit BackwardWalk(WalkContext& context);
  ~BackwardWalk();

  // Notes with which weights forward computed.
  void stamp(int unit);

  // Autograd runs between these two. finish() does the steps that are left.
  void start() { is_running_ = true; }
  void finish();

  // The gradient of the entry's output is there and not yet used.
  void output_gradient_is_ready(int entry);

  // The recomputation of an entry: begin, forward again, gathered(), its backward, end.
  void begin_recompute(int entry);
  void recompute_is_done(int entry);
  void end_recompute() { recomputed_entry_ = kNone; }

 private:
  static constexpr int kNone = -1;

  const PassPlan::Entry& entry(int index) const;
  void advance(size_t steps);
  void run(const BackwardStep& step);
  bool is_recomputed_at_several_entries(int unit) const;
  void check_epoch(int unit) const;
  void check_running(int entry) const;

  WalkContext& context_;
  std::vector<uint64_t> epochs_;  // per unit
  size_t done_ = 0;               // steps
  bool is_running_ = false;
  int recomputed_entry_ = kNone;
};

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_BACKWARD_WALK_H_
