#include "tests/world/odd_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "strata/formats/hash.h"
#include "strata/zoo/head_loss.h"

namespace strata::tests {
namespace {

bool any_parameter(const OddShape& shape, bool (*is_such)(const OddParameter&)) {
  return std::any_of(shape.units.begin(), shape.units.end(), [&](const auto& unit) {
    return std::any_of(unit.begin(), unit.end(), is_such);
  });
}

model::ModelSpec spec_of(const OddShape& shape) {
  model::ModelSpec spec;
  for (size_t u = 0; u < shape.units.size(); ++u) {
    model::UnitSpec unit{"unit." + std::to_string(u), {}};
    for (size_t p = 0; p < shape.units[u].size(); ++p) {
      const OddParameter& from = shape.units[u][p];
      unit.parameters.push_back({fmt::format("u{}.p{}", u, p), from.shape, from.is_trainable});
    }
    spec.units.push_back(std::move(unit));
  }
  spec.order = shape.order;
  return spec;
}

}  // namespace

bool OddShape::has_frozen() const {
  return any_parameter(*this, [](const OddParameter& p) { return !p.is_trainable; });
}

bool OddShape::may_miss_gradients() const {
  return any_parameter(*this, [](const OddParameter& p) { return p.use != Use::kAlways; });
}

std::string OddShape::text() const {
  std::string out = fmt::format("order {}", fmt::join(order, " "));
  for (size_t u = 0; u < units.size(); ++u) {
    out += fmt::format("; unit {}:", u);
    for (const OddParameter& p : units[u]) {
      out += fmt::format(" [{}]{}{}", fmt::join(p.shape, " "), p.is_trainable ? "" : " frozen",
                         p.use == Use::kAlways  ? ""
                         : p.use == Use::kNever ? " unused"
                                                : " used by some");
    }
  }
  return out + (is_linear ? "; linear" : "");
}

OddModel::OddModel(OddShape shape) : shape_(std::move(shape)), spec_(spec_of(shape_)) {}

// ---- computation ----

at::Tensor OddModel::features(const at::Tensor& ids) const {
  const at::Tensor column = at::arange(1, shape_.width + 1, at::kLong);
  const at::Tensor product = ids.reshape({-1, 1}) * column;
  if (!shape_.is_linear) return at::sin(product.to(at::kFloat) * 0.7);
  const at::Tensor integers = (product % 7 - 3).to(at::kFloat);
  integers.select(1, shape_.width - 1).zero_();  // where contributions are summed
  return integers;
}

at::Tensor OddModel::contribution(const at::Tensor& x, const at::Tensor& weight) const {
  const int64_t width = shape_.width;
  const int64_t numel = weight.numel();
  if (numel == 0) return x * weight.sum().to(x.scalar_type());
  const at::Tensor index = at::arange(numel, at::kLong);
  const at::Tensor taken =
      x.index_select(1, index % (shape_.is_linear ? width - 1 : width)).to(weight.scalar_type());
  const at::Tensor flat = weight.reshape({-1});
  if (shape_.is_linear) {
    const at::Tensor direction = at::zeros({width});
    direction[width - 1].fill_(1);
    return (taken.detach() * flat).sum(1, true).to(at::kFloat) * direction;
  }
  const at::Tensor pattern = (index % 3 + 1).to(at::kFloat) / std::sqrt(static_cast<double>(numel));
  const at::Tensor sums = at::tanh((taken * pattern.to(weight.scalar_type()) * flat).sum(1, true));
  return sums.to(at::kFloat) * at::cos(at::arange(width, at::kFloat) + static_cast<double>(numel));
}

at::Tensor OddModel::compute(int unit, const at::Tensor& x, const at::Tensor& sometimes) const {
  if (on_entry_ != nullptr) on_entry_();
  const auto u = static_cast<size_t>(unit);
  at::Tensor out = x;
  for (size_t p = 0; p < shape_.units[u].size(); ++p) {
    const Use use = shape_.units[u][p].use;
    if (use == Use::kNever || (use == Use::kSometimes && !sometimes.defined())) continue;
    const at::Tensor added = contribution(x, units_[u]->parameter(p));
    out = out + (use == Use::kSometimes ? added * sometimes : added);
  }
  // An entry's output is a tensor of its own.
  return out.is_same(x) ? x.clone() : out;
}

at::Tensor OddModel::run(const zoo::Batch& batch, hooks::UnitRunner& runner,
                         const std::function<at::Tensor(const at::Tensor&)>& finish) {
  const at::Tensor is_such = (batch.input_ids.reshape({-1, 1}) % 8).eq(0);
  const at::Tensor sometimes = is_such.any().item<bool>() ? is_such.to(at::kFloat) : at::Tensor();
  at::Tensor x = features(batch.input_ids);
  for (size_t entry = 0; entry < spec_.order.size(); ++entry) {
    const int unit = spec_.order[entry];
    const bool is_end = entry + 1 == spec_.order.size();
    x = runner.enter(unit, x, [this, unit, sometimes, is_end, finish](const at::Tensor& x) {
      const at::Tensor out = compute(unit, x, sometimes);
      return is_end ? finish(out) : out;
    });
  }
  return x;
}

zoo::LossOutput OddModel::forward_loss(const zoo::Batch& batch, hooks::UnitRunner& runner) {
  const at::Tensor labels = batch.labels.reshape({-1});
  const at::Tensor is_counted = labels.ne(zoo::kNoLabel);
  const at::Tensor wanted = labels.to(at::kFloat) * 0.05;
  zoo::LossOutput out;
  out.label_tokens = is_counted.sum().item<int64_t>();
  out.loss_sum = run(batch, runner, [this, is_counted, wanted](const at::Tensor& x) {
    const at::Tensor rows =
        shape_.is_linear ? x.select(1, shape_.width - 1) : at::square(x.mean(1) - wanted);
    return (rows * is_counted).sum();
  });
  return out;
}

at::Tensor OddModel::logits(const zoo::Batch& batch, hooks::UnitRunner& runner) {
  const int64_t rows = batch.input_ids.size(0);
  const int64_t length = batch.input_ids.size(1);
  return run(batch, runner, [](const at::Tensor& x) { return x; }).reshape({rows, length, -1});
}

at::Tensor OddModel::next_logits(const at::Tensor& input_ids, const at::Tensor&, const at::Tensor&,
                                 zoo::KeyValueCache&, hooks::UnitRunner& runner) {
  zoo::Batch batch;
  batch.input_ids = input_ids;
  return logits(batch, runner).select(1, input_ids.size(1) - 1);
}

void OddModel::initialize(int unit, int parameter, const at::Tensor& out, uint64_t seed) const {
  const std::string text = fmt::format("{} {} {}", seed, unit, parameter);
  formats::Hash64 hash;
  hash.update(text);
  const at::Generator generator = at::detail::createCPUGenerator(hash.value());
  out.copy_(at::randn(out.sizes(), generator));
}

Status OddModel::save_config(const std::string&) const {
  return unsupported("a hand-made model has no configuration file");
}

OddShape every_odd_shape() {
  const auto frozen = [](std::vector<int64_t> shape) {
    return OddParameter{std::move(shape), false, Use::kAlways};
  };
  OddShape shape;
  shape.units = {
      {frozen({6, 7}), frozen({})},                             // in front of all that is trained
      {{{}}, {{0}}, {{1}}, {{13}}, {{17, 19}}},                 // tied: entered three times
      {{{3, 0, 2}}},                                            // nothing in it
      {{{257}}, frozen({31}), {{5}, true, Use::kNever}},        // frozen beside trained
      {},                                                       // without parameters
      {{{2, 3, 5, 7}}, {{11}, true, Use::kSometimes}, {{64}}},  // used by some batches
      {frozen({10})},                                           // frozen between
      {{{128, 2}}, {{1, 1}}},
  };
  shape.order = {0, 1, 2, 3, 1, 4, 5, 6, 7, 1};
  return shape;
}

}  // namespace strata::tests
