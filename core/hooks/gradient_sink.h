// Where the gradients of one unit go: from autograd into memory that a strategy owns.
//
// A pre-hook on each trainable leaf copies the gradient into the target (the first of this window)
// or adds it, in the target's dtype, and tells autograd that there is none: `.grad` never exists,
// and nothing is zeroed or copied twice.
#ifndef STRATA_HOOKS_GRADIENT_SINK_H_
#define STRATA_HOOKS_GRADIENT_SINK_H_

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "strata/hooks/unit_events.h"
#include "strata/model/unit_storage.h"

namespace strata::hooks {

class GradientSink {
 public:
  // Owns the hooks of the unit's leaves from here to its end. `unit` outlives the sink.
  explicit GradientSink(const model::UnitStorage& unit);
  GradientSink(const GradientSink&) = delete;
  GradientSink& operator=(const GradientSink&) = delete;
  ~GradientSink();

  // Gradients that come from now on go into `target`; outside of open and close they are refused.
  //
  // Note [Several gradients of one backward]
  // Autograd adds the gradients of all uses of a parameter, in their dtype, before it hands them
  // on. A unit that is recomputed at several entries gives one gradient an entry instead. With
  // `gathers_entries` these are kept and added in the same way, and written by close(): so a unit
  // has the same bits with and without recomputation, whatever the target's dtype and mode.
  void open(const GradientTarget& target, bool gathers_entries = false);

  // Writes zeros into all that got nothing (gaps, frozen and missing parameters) if the target was
  // not accumulating. Returns the trainable parameters that got no gradient; valid until open().
  std::span<const int> close();

  // As if never opened: for a pass that failed.
  void abandon();

 private:
  class LeafHook;

  // Takes one gradient of one parameter. A parameter may get several between open and close
  // (several entries of a recomputed unit): they add up.
  void take(size_t parameter, const at::Tensor& gradient);
  void write(size_t parameter, const at::Tensor& gradient);
  void check(size_t parameter, const at::Tensor& gradient) const;
  at::Tensor view(int64_t first, at::IntArrayRef sizes) const;
  void write_zeros(int64_t first, int64_t last) const;

  const model::UnitStorage& unit_;
  GradientTarget target_;
  bool is_open_ = false;
  bool gathers_entries_ = false;
  std::vector<at::Tensor> gathered_;  // per parameter; see Note [Several gradients ...]
  std::vector<bool> has_gradient_;    // per parameter: it is in the target
  std::vector<int> missing_;
};

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_GRADIENT_SINK_H_
