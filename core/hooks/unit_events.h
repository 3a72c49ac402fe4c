// What autograd's events become: calls per unit, in the declared order. strategy::Session
// implements this; tests record it.
//
// Functions that cannot do what they should throw StatusError, which passes through autograd to the
// caller of backward.
#ifndef STRATA_HOOKS_UNIT_EVENTS_H_
#define STRATA_HOOKS_UNIT_EVENTS_H_

#include <ATen/core/Tensor.h>

#include <span>

namespace strata::hooks {

inline constexpr int kNoUnit = -1;

enum class Phase {
  kForward,    // a forward that a backward follows
  kRecompute,  // forward again, inside backward
  kInference,  // a forward that no backward follows
};

struct GradientTarget {
  void* data = nullptr;  // the unit's flat numel elements, until after_backward
  at::ScalarType dtype = at::kFloat;
  bool is_accumulating =
      false;  // true: add gradients and touch nothing else; false: write every element
};

class UnitEvents {
 public:
  virtual ~UnitEvents() = default;
  // After these two the unit's storage is bound. Called once per unit and pass, before its first
  // entry.
  virtual void before_forward(int unit, Phase phase, int next_unit) = 0;
  virtual void before_backward(int unit, int next_unit) = 0;
  // Behind the last entry of the unit in this pass. `backward_begins_here`: the unit of the last
  // entry of all.
  virtual void after_forward(int unit, Phase phase, int next_unit, bool backward_begins_here) = 0;
  // Once per trainable unit and backward, behind before_backward.
  virtual GradientTarget gradient_target(int unit) = 0;
  // All gradients of the unit are written. `missing`: trainable parameters that got none in this
  // backward; where the target was not accumulating, zeros were written for them.
  virtual void after_backward(int unit, int next_unit, std::span<const int> missing) = 0;
};

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_UNIT_EVENTS_H_
