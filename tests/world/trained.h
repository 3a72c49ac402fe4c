// One training, run twice: by a strategy on ranks as threads, through the stepper that commands
// use, and by a plain loop in one process that adds gradients in the order which a strategy
// promises. The same numbers to the last bit must come out.
#ifndef STRATA_TESTS_WORLD_TRAINED_H_
#define STRATA_TESTS_WORLD_TRAINED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"
#include "strata/device/host.h"
#include "strata/model/unit_spec.h"
#include "strata/optim/clipping.h"
#include "strata/zoo/model.h"

namespace strata::tests {

// Where a micro-batch belongs.
struct BatchPlace {
  int step = 0;
  int rank = 0;
  int micro = 0;
};

// What is trained, on what and how: the same for every strategy.
struct Task {
  std::function<std::unique_ptr<zoo::Model>()> make_model;
  std::function<zoo::Batch(const BatchPlace& place)> batch;
  std::vector<int> windows = {1, 1, 1};               // micro-batches of each step
  std::function<model::UnitDtypes(int unit)> dtypes;  // unset: fp32 everywhere
  std::string optimizer = "adamw";
  double max_grad_norm = 0;  // 0: no clipping
  double norm_type = 2;
  double max_grad_value = 0;  // 0: no clipping by value
  double learning_rate = 1e-2;
  double weight_decay = 0.01;
  // Far above the rounding noise of gradients that are zero in truth (of a GPT-2's key biases):
  // Adam would divide that noise by itself and make real steps of it.
  double adam_epsilon = 1e-4;
  uint64_t seed = 7;

  // The model's, with the dtypes.
  model::ModelSpec spec(const zoo::Model& model) const;
  int steps() const { return static_cast<int>(windows.size()); }
  optim::Clipping clipping() const { return {max_grad_norm, norm_type, max_grad_value}; }
};

// By which strategy, on how many ranks.
struct Placement {
  std::string strategy;  // "fsdp:limit_all_gathers=1"
  int world = 1;
  bool recomputes = false;
  bool is_checked = false;  // through the plugin's checker
  bool infers = false;      // a forward without backward in front of each step
};

// What came out, the same on every rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<int64_t> tokens;
  std::string hash;                         // of all weights
  std::vector<std::vector<float>> weights;  // by parameter, units in order
  std::string error;                        // of the ranks that failed, a line each; "" if none did

  // Of rank 0, in the last step. Not of the plain loop.
  strata_estimate_t estimate{};
  device::PlaceStats at_rest;
  device::PlaceStats in_step;
  uint64_t sent_bytes = 0;
};

Trained train_on_ranks(const Task& task, const Placement& placement);

// In which order gradients g[rank][micro-batch] become one sum.
struct SumOrder {
  bool adds_ranks_first = false;  // in each micro-batch; false: micro-batches on each rank first
  int group = 0;                  // ranks of a group first, then groups; 0: all in rank order
  // The gradients of a unit that is entered several times are made entry by entry, and added, last
  // entry first, before they are added to what is there: so under activation checkpointing. False:
  // as autograd adds them, which differs where one entry uses a parameter more than once.
  bool adds_each_entry = false;
};

// The whole training in this thread alone, with gradients from torch::autograd::grad, cast where
// abi/strategy.h says that they are.
Trained train_in_one_process(const Task& task, int world, const SumOrder& order = {});

// Expects losses, norms and weights of the same bits.
void expect_same_bits(const Trained& found, const Trained& expected, const std::string& what);
// Losses and norms to `relative` of themselves, weights to `relative` of their common length.
void expect_close(const Trained& found, const Trained& expected, double relative,
                  const std::string& what);

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_TRAINED_H_
