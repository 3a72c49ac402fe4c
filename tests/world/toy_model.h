// A model without LibTorch for tests of strategies: units of odd sizes, a linear toy gradient, and
// a scalar reference that trains it in one loop, in the order in which ranks must add.
#ifndef STRATA_TESTS_WORLD_TOY_MODEL_H_
#define STRATA_TESTS_WORLD_TOY_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"

namespace strata::tests {

struct ToyParameter {
  std::string name;
  int64_t numel = 0;
  bool is_trainable = true;
};

// STRATA_DTYPE_*, as in strata_unit_t.
struct ToyDtypes {
  int32_t compute = STRATA_DTYPE_F32;
  int32_t reduce = STRATA_DTYPE_F32;
  int32_t accumulate = STRATA_DTYPE_F32;
};

struct ToyUnit {
  std::string name;
  std::vector<ToyParameter> parameters;
  ToyDtypes dtypes = {};

  bool is_trainable() const;
  uint64_t numel() const;  // without padding
};

struct ToyModel {
  std::vector<ToyUnit> units;
  std::vector<uint32_t> order;

  uint32_t first_entry(uint32_t unit) const;
  uint32_t last_entry(uint32_t unit) const;
  // As the contract says: not if frozen and in front of everything that is trained.
  bool has_backward(uint32_t unit) const;
};

// Embeddings whose head is tied to them, and three blocks between: order 0 1 2 3 0.
ToyModel tied_model();
// Units that share nothing: order 0 1 2 3 4.
ToyModel chain_model();
// Frozen units in front and in the middle, frozen parameters beside trained ones, a unit with
// nothing in it.
ToyModel partly_frozen_model();
// A random model with random ties.
ToyModel random_model(uint64_t seed);
// The model in these dtypes.
ToyModel with_dtypes(ToyModel model, const ToyDtypes& dtypes);
// The model with other dtypes from unit to unit, beginning with the first-th of a list of eight.
ToyModel with_mixed_dtypes(ToyModel model, uint64_t first);

// The nearest value of the dtype, ties to even; beyond the largest one infinity. In plain
// arithmetic, apart from the kernels that are tested.
float rounded(float value, int32_t dtype);

// The model in the words of the contract. Without a layout: sizes only.
class ToyDescription {
 public:
  explicit ToyDescription(const ToyModel& model);
  // Lays all units out.
  void lay_out(const std::vector<strata_layout_t>& layouts);

  strata_model_t& model() { return model_; }
  strata_unit_t& unit(uint32_t index) { return units_[index]; }
  const strata_unit_t& unit(uint32_t index) const { return units_[index]; }
  uint64_t offset(uint32_t unit, uint32_t parameter) const {
    return parameters_[unit][parameter].offset;
  }

 private:
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::vector<strata_parameter_t>> parameters_;
  std::vector<strata_unit_t> units_;
  std::vector<uint32_t> order_;
  strata_model_t model_{};
};

// Where a number of the model stands.
struct Place {
  uint32_t unit = 0;
  uint32_t parameter = 0;
  uint64_t index = 0;
};

// The moment of a gradient.
struct Moment {
  uint32_t rank = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;
};

// Weights before the first step.
float initial_weight(const Place& place);
// What a backward adds to a gradient: a first part when it begins a unit, a second when it ends it.
float gradient_part(const Moment& moment, const Place& place, int part, float weight);
float updated_weight(float weight, float gradient);
// Whether a parameter gets no gradient in that backward.
using IsMissing = std::function<bool(const Moment&, uint32_t unit, uint32_t parameter)>;

struct ToyTraining {
  uint32_t world = 1;
  uint32_t steps = 3;
  uint32_t accumulation = 1;
  bool reduces_each_batch = false;  // ranks are added in each micro-batch, not once a window
  IsMissing is_missing;             // empty: none
  // What a gradient is instead of gradient_part(). Empty: the same.
  std::function<float(const Moment&, const Place&, float gradient)> bend;
};

// By unit, parameter, element.
using Weights = std::vector<std::vector<std::vector<float>>>;
// The weights before each step and behind the last: steps + 1 of them.
std::vector<Weights> train_reference(const ToyModel& model, const ToyTraining& training);

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_TOY_MODEL_H_
