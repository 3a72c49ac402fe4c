// Which unit events a pass has, and at which of its entries: arithmetic over the declared order,
// without tensors. Frozen units in front of everything that is trained have no backward: autograd
// does not come there.
//
//   order 0 1 2 0: unit 0 is tied, nothing is recomputed
//     entry               0            1                    2                    3
//     forward             before(0)    before(1) after(1)   before(2) after(2)   after(0)
//     backward steps      #5 after(0)  #3 before(1)         #1 before(2)         #0 before(0)
//                                      #4 after(1)          #2 after(2)
//     steps_until_output  5            4                    2                    1
#ifndef STRATA_HOOKS_PASS_PLAN_H_
#define STRATA_HOOKS_PASS_PLAN_H_

#include <span>
#include <string>
#include <vector>

#include "strata/base/status.h"

namespace strata::hooks {

// One event of backward.
struct BackwardStep {
  enum class Kind {
    kBeforeRecompute,  // before_forward in phase kRecompute
    kAfterRecompute,   // after_forward in phase kRecompute
    kBeforeBackward,   // and gradient_target
    kAfterBackward,
  };
  Kind kind;
  int unit;
  int next_unit;  // the unit that backward gathers next, or kNoUnit
};

struct PassPlan {
  struct Entry {
    int unit = 0;
    bool is_first = false;  // of its unit in forward
    bool is_last = false;
    bool is_recomputed = false;
    bool has_backward = true;
    int next_unit = 0;  // the unit that forward gathers next, or kNoUnit
    // How many backward steps are done before the gradient of this entry's output may be used, and
    // before gradients of its parameters may come. They differ by the recomputation.
    size_t steps_until_output = 0;
    size_t steps_until_gradients = 0;
  };
  std::vector<Entry> entries;
  std::vector<BackwardStep> backward;
};

// Whether every entry names a unit and every unit is entered.
Status check_order(std::span<const int> order, std::span<const std::string> unit_names);

// Per unit, whether backward comes to it: it is trained, or entered behind a trained one.
//
// REQUIRES: check_order() is ok; is_trained has one element per unit.
std::vector<bool> find_backward(std::span<const int> order, const std::vector<bool>& is_trained);

// REQUIRES: check_order() is ok; has_backward and is_recomputed have one element per unit.
PassPlan make_pass_plan(std::span<const int> order, const std::vector<bool>& has_backward,
                        const std::vector<bool>& is_recomputed);

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_PASS_PLAN_H_
