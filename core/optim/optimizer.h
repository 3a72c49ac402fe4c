// What every optimizer is to the trainer: an update of the slices that this rank owns, and states
// with names that go into checkpoints.
//
// An optimizer that needs a quantity of a whole parameter (LAMB, Adafactor) sums over all ranks in
// integers, so that its bits do not depend on how the parameter is sliced. docs/OPTIMIZERS.md has
// each formula.
#ifndef STRATA_OPTIM_OPTIMIZER_H_
#define STRATA_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/model/partition.h"
#include "strata/model/unit_spec.h"
#include "strata/optim/gradients.h"
#include "strata/optim/parameter_groups.h"

namespace strata::optim {

// Numbers of this rank become those of all ranks, of any count. [collective]
class Reducer {
 public:
  virtual ~Reducer() = default;
  virtual Status sum(std::span<int64_t> values) = 0;
  virtual Status max(std::span<double> values) = 0;
};

// One rank: nothing to do.
class NoReducer final : public Reducer {
 public:
  Status sum(std::span<int64_t>) override { return {}; }
  Status max(std::span<double>) override { return {}; }
};

struct OptimizerOptions {
  std::string name = "adamw";  // one of optimizer_names()
  double beta1 = 0.9;          // adamw, adam, lion, lamb
  double beta2 = 0.999;        // likewise
  double epsilon = 1e-8;       // adamw, adam, adagrad, lamb
  double momentum = 0;         // sgd
  bool nesterov = false;       // sgd
  // Of Adafactor: the rate is multiplied by the root mean square of the parameter.
  bool scale_parameter = false;
  double clip_threshold = 1;  // largest root mean square of an update
  double decay_rate = -0.8;   // the second moment's decay in update t is 1 - t^decay_rate
};

// Zeroed fp32 memory for `numel` elements, given back when the last owner goes.
using StateMemory = std::shared_ptr<float>;
using AllocateState = std::function<Result<StateMemory>(int64_t numel)>;

// What an optimizer is made for. `partitions` point to masters and gradients that stay where they
// are.
struct OptimizerInput {
  const model::ModelSpec& spec;
  const std::vector<model::FlatLayout>& layouts;
  const std::vector<model::Partition>& partitions;
  const ParameterGroups& groups;
  AllocateState allocate;
};

// One fp32 state: elements [offset, offset + numel) of its kind in a unit. For most kinds these are
// elements of the unit's flat buffer; a state that every rank holds as a whole has coordinates of
// its own (docs/CHECKPOINT_FORMAT.md).
struct StateTensor {
  std::string kind;  // for example "exp_avg"
  int unit = 0;
  int64_t offset = 0;
  int64_t numel = 0;
  float* data = nullptr;
  bool is_whole = false;      // the same on every rank: one of them writes it
  bool is_first_copy = true;  // of a slice that several ranks hold
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates all masters by the gradient under `scale`. Gradients are undefined afterwards.
  // [collective]
  //
  // REQUIRES: scale.factor > 0 and finite; gradients are finite.
  // Returns   kInternal  a sum over a parameter is not finite: its name
  //           what `reducer` returns
  // On error  masters and states are undefined.
  Status step(double learning_rate, const GradientScale& scale, Reducer& reducer);

  const std::string& name() const { return name_; }
  // Updates done so far.
  int64_t step_count() const { return step_count_; }
  void set_step_count(int64_t steps) { step_count_ = steps; }

  // In the order of partitions; frozen ones have none.
  const std::vector<StateTensor>& states() const { return states_; }

 protected:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}

  virtual Status update(double learning_rate, const GradientScale& scale, Reducer& reducer) = 0;

  // Zeroed memory for a state, which is put on the list.
  Result<float*> add_state(const AllocateState& allocate, StateTensor state);

 private:
  std::string name_;
  int64_t step_count_ = 0;
  std::vector<StateTensor> states_;
  std::vector<StateMemory> memory_;
};

}  // namespace strata::optim

#endif  // STRATA_OPTIM_OPTIMIZER_H_
