// A model of LibTorch tensors that is made by hand: units with parameters of every shape, tied,
// frozen, and used by some batches only.
//
// x (R, D) is made from the R = B x T token ids of a batch. An entry of a unit adds to x, for each
// of its parameters w of n elements, the vector tanh(sum_i w_i x_(i mod D) c_i / sqrt n) times a
// fixed direction. The loss of a row is the square of what its label is missed by. x is fp32; what
// is multiplied by w and summed has the dtype of w.
//
// A linear model adds sums of integers times w instead: its gradients are integers, which floats
// add exactly in any order.
#ifndef STRATA_TESTS_WORLD_ODD_MODEL_H_
#define STRATA_TESTS_WORLD_ODD_MODEL_H_

#include <functional>
#include <string>
#include <vector>

#include "strata/zoo/model.h"

namespace strata::tests {

// Which batches use a parameter.
enum class Use {
  kAlways,
  kNever,
  kSometimes,  // those with a token id that is a multiple of 8: it adds to the rows of these
};

struct OddParameter {
  std::vector<int64_t> shape;
  bool is_trainable = true;
  Use use = Use::kAlways;
};

struct OddShape {
  std::vector<std::vector<OddParameter>> units;
  std::vector<int> order;  // of entries; a unit that comes twice is tied
  int64_t width = 5;       // D
  bool is_linear = false;

  bool is_tied() const { return order.size() > units.size(); }
  bool has_frozen() const;
  bool may_miss_gradients() const;
  // For the text of a failure, for example "order 0 1 0; unit 0: [3 7] [] frozen; unit 1: [0]".
  std::string text() const;
};

class OddModel final : public zoo::Model {
 public:
  explicit OddModel(OddShape shape);

  // Called whenever an entry computes, in forward and in recomputation.
  void on_entry(std::function<void()> call) { on_entry_ = std::move(call); }

  const model::ModelSpec& spec() const override { return spec_; }
  int64_t vocab_size() const override { return 64; }
  int64_t max_positions() const override { return 64; }
  void bind_units(std::vector<model::UnitStorage*> units) override { units_ = std::move(units); }
  zoo::LossOutput forward_loss(const zoo::Batch& batch, hooks::UnitRunner& runner) override;
  // x (B, T, D) behind the last entry.
  at::Tensor logits(const zoo::Batch& batch, hooks::UnitRunner& runner) override;
  at::Tensor next_logits(const at::Tensor& input_ids, const at::Tensor& position_ids,
                         const at::Tensor& mask, zoo::KeyValueCache& cache,
                         hooks::UnitRunner& runner) override;
  void initialize(int unit, int parameter, const at::Tensor& out, uint64_t seed) const override;
  std::vector<std::string> aliases_of(const std::string&) const override { return {}; }
  bool is_ignored_in_files(const std::string&) const override { return false; }
  Status save_config(const std::string& folder) const override;

 private:
  at::Tensor features(const at::Tensor& ids) const;
  // `sometimes` (R, 1) is 1 for rows that Use::kSometimes means; undefined if there are none.
  at::Tensor compute(int unit, const at::Tensor& x, const at::Tensor& sometimes) const;
  at::Tensor contribution(const at::Tensor& x, const at::Tensor& weight) const;
  at::Tensor run(const zoo::Batch& batch, hooks::UnitRunner& runner,
                 const std::function<at::Tensor(const at::Tensor&)>& finish);

  OddShape shape_;
  model::ModelSpec spec_;
  std::function<void()> on_entry_;
  std::vector<model::UnitStorage*> units_;
};

// Shapes of every kind, tied over three entries, frozen units in front and between, parameters that
// no batch or not every batch uses.
OddShape every_odd_shape();

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_ODD_MODEL_H_
