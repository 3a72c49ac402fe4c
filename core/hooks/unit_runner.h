// How a model runs the computation of its units: every entry of a unit goes through
// UnitRunner::enter.
//
//   x = runner.enter(0, ids, [&](const at::Tensor& ids) { return embed(ids); });
//   x = runner.enter(1, x,   [&](const at::Tensor& x)   { return block(1, x); });
//   y = runner.enter(0, x,   [&](const at::Tensor& x)   { return head(x); });   // tied: unit 0
//   again
#ifndef STRATA_HOOKS_UNIT_RUNNER_H_
#define STRATA_HOOKS_UNIT_RUNNER_H_

#include <ATen/core/Tensor.h>

#include <functional>

namespace strata::hooks {

class UnitRunner {
 public:
  // Takes the input of the entry, returns its output. May be run twice (recomputation), so it
  // captures nothing by reference that dies before backward ends, and has no side effects but
  // random numbers.
  using Body = std::function<at::Tensor(const at::Tensor& input)>;

  virtual ~UnitRunner() = default;
  // Runs one entry of `unit`: gathers the unit, computes, frees. Entries come in the declared order
  // of the ModelSpec.
  virtual at::Tensor enter(int unit, const at::Tensor& input, const Body& body) = 0;
};

// Computes at once; the units are bound by somebody else. For tests and tools.
class DirectRunner : public UnitRunner {
 public:
  at::Tensor enter(int, const at::Tensor& input, const Body& body) override { return body(input); }
};

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_UNIT_RUNNER_H_
