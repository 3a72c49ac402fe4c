// The zoo in 16 bits: layers to one rounding of the exact values, GPT-2 close to its fp32 self, the
// loss scale where it is needed.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "strata/hooks/unit_graph.h"
#include "strata/zoo/head_loss.h"
#include "strata/zoo/layers.h"
#include "tests/unit/zoo_fixture.h"

namespace strata::tests {
namespace {

using formats::SafetensorsFile;
using torch::autograd::grad;
using torch::autograd::variable_list;

class SixteenBits : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  SixteenBits() {
    at::set_num_threads(1);
    at::manual_seed(3);
  }
  // One unit in the last place of 1.
  double unit() const { return dtype() == at::kBFloat16 ? std::ldexp(1, -7) : std::ldexp(1, -10); }
  at::ScalarType dtype() const { return GetParam(); }

  at::Tensor leaf(const at::Tensor& values) const {
    return values.to(dtype()).set_requires_grad(true);
  }
  static at::Tensor wide(const at::Tensor& leaf) {
    return leaf.detach().to(at::kDouble).set_requires_grad(true);
  }
  // At most `units` units in the last place off; `floor` is added to the size for values near 0.
  void expect_close(const at::Tensor& got, const at::Tensor& exact, double units, double floor,
                    const std::string& what) const {
    EXPECT_EQ(got.scalar_type(), dtype()) << what;
    const at::Tensor error = (got.to(at::kDouble) - exact).abs() / (exact.abs() + floor);
    EXPECT_LE(error.max().item<double>() / unit(), units) << what;
  }
};

TEST_P(SixteenBits, LayerNormAndItsGradientsAreRoundedOnce) {
  const at::Tensor x = leaf(at::randn({4096, 32}));
  const at::Tensor w = leaf(at::randn({32}) * 0.1 + 1);
  const at::Tensor b = leaf(at::randn({32}) * 0.1);
  const at::Tensor upper = (at::randn({4096, 32}) + 0.5).to(dtype());
  const variable_list inputs = {wide(x), wide(w), wide(b)};
  const at::Tensor exact = at::layer_norm(inputs[0], {32}, inputs[1], inputs[2], 1e-5);
  const at::Tensor y = zoo::layer_norm(x, w, b, 1e-5);
  expect_close(y, exact, 0.6, 0.1, "value");
  const variable_list expected = grad({exact}, inputs, {upper.to(at::kDouble)});
  const variable_list got = grad({y}, {x, w, b}, {upper});
  // Over 4096 rows: sums in 16 bits would be a hundred units off.
  for (size_t i = 0; i < 3; ++i) expect_close(got[i], expected[i], 0.6, 0.1, std::to_string(i));
}

TEST_P(SixteenBits, LayerNormLeavesFrozenWeightsWithoutGradient) {
  const at::Tensor x = leaf(at::randn({3, 8}));
  const at::Tensor w = at::ones({8}, dtype());
  const at::Tensor b = leaf(at::zeros({8}));
  zoo::layer_norm(x, w, b, 1e-5).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(b.grad().defined());
}

TEST_P(SixteenBits, EmbeddingAddsRepeatedRowsInFp32) {
  const at::Tensor ids = at::arange(3000, at::kLong).remainder(3).view({2, 1500});
  const at::Tensor w = leaf(at::randn({5, 16}));
  const at::Tensor upper = at::rand({2, 1500, 16}).to(dtype());
  const at::Tensor y = zoo::look_up(w, ids);
  EXPECT_TRUE(at::equal(y, at::embedding(w, ids)));
  const at::Tensor exact = wide(w);
  const at::Tensor expected =
      grad({at::embedding(exact, ids)}, {exact}, {upper.to(at::kDouble)})[0];
  const at::Tensor got = grad({y}, {w}, {upper})[0];
  expect_close(got, expected, 0.6, 0.1, "gradient");
  EXPECT_EQ(got.narrow(0, 3, 2).abs().max().item<float>(), 0.0F);
}

// Loss, and gradients by rows and weight, of rows that need several chunks of logits.
TEST_P(SixteenBits, HeadLossFollowsItsFp32SelfOverChunks) {
  const at::Tensor rows = leaf(at::randn({300, 16}));
  const at::Tensor weight = leaf(at::randn({40000, 16}) * 0.1);
  at::Tensor labels = at::randint(0, 20, {300}, at::kLong);
  labels.narrow(0, 5, 3).fill_(zoo::kNoLabel);
  const at::Tensor loss = zoo::head_loss(rows, weight, labels);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  const at::Tensor rows32 = rows.detach().to(at::kFloat).set_requires_grad(true);
  const at::Tensor weight32 = weight.detach().to(at::kFloat).set_requires_grad(true);
  const at::Tensor exact = zoo::head_loss(rows32, weight32, labels);
  EXPECT_NEAR(loss.item<double>() / exact.item<double>(), 1, unit() / 10);
  const variable_list got = grad({loss}, {rows, weight});
  const variable_list expected = grad({exact}, {rows32, weight32});
  expect_close(got[0], expected[0].to(at::kDouble), 2, 0.1, "rows");
  expect_close(got[1], expected[1].to(at::kDouble), 4, 1, "weight");
}

TEST_P(SixteenBits, HeadLossScalesGradientsByWhatBackwardBeginsWith) {
  const at::Tensor rows = leaf(at::randn({20, 16}));
  const at::Tensor weight = leaf(at::randn({50, 16}));
  const at::Tensor labels = at::randint(0, 50, {20}, at::kLong);
  const at::Tensor upper = at::scalar_tensor(64.0F);
  const variable_list plain = grad({zoo::head_loss(rows, weight, labels)}, {rows, weight});
  const auto scaled = [&](double announced) {
    return grad({zoo::head_loss(rows, weight, labels, announced)}, {rows, weight}, {upper});
  };
  for (const double announced : {64.0, 1.0, 16.0}) {
    const variable_list got = scaled(announced);
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor expected = plain[i].to(at::kDouble) * 64;
      expect_close(got[i], expected, 1.1, 1, "announced " + std::to_string(announced));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SixteenBits, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) { return at::toString(info.param); });

// Labels that are nearly certain have gradients below fp16's smallest number.
TEST(LossScaleOfTheHead, KeepsSmallGradientsOfFp16) {
  at::manual_seed(4);
  at::Tensor rows = at::zeros({4, 2}).to(at::kHalf);
  rows.select(1, 0).fill_(1);
  rows.set_requires_grad(true);
  at::Tensor weight = at::zeros({3, 2}).to(at::kHalf);
  weight[0][0] = 19;  // the others have probability 6e-9
  weight.set_requires_grad(true);
  const at::Tensor labels = at::zeros({4}, at::kLong);
  const at::Tensor without = grad({zoo::head_loss(rows, weight, labels)}, {weight})[0];
  EXPECT_EQ(without[1][0].item<float>(), 0.0F) << "vanishes unscaled";
  const at::Tensor with = grad({zoo::head_loss(rows, weight, labels, 65536)}, {weight},
                               {at::scalar_tensor(65536.0F)})[0];
  const double expected = 4 * std::exp(-19.0);
  EXPECT_NEAR(with[1][0].item<double>() / 65536, expected, 0.01 * expected);
}

// ---- GPT-2 ----

// Loss and gradients of a case's batch, through the unit graph.
struct Computed {
  double loss = 0;
  std::vector<at::Tensor> gradients;  // flat, fp32, one a unit
};

class FlatGradients final : public hooks::UnitEvents {
 public:
  explicit FlatGradients(const BoundModel& model) {
    for (const auto& storage : model.storages) {
      gradients.push_back(at::empty({storage->layout().numel}));
    }
  }
  void before_forward(int, hooks::Phase, int) override {}
  void after_forward(int, hooks::Phase, int, bool) override {}
  void before_backward(int, int) override {}
  void after_backward(int, int, std::span<const int>) override {}
  hooks::GradientTarget gradient_target(int unit) override {
    return {gradients[static_cast<size_t>(unit)].data_ptr(), at::kFloat, false};
  }
  std::vector<at::Tensor> gradients;
};

struct Options {
  std::optional<at::ScalarType> buffers = std::nullopt;
  bool recompute = false;
  double loss_scale = 1;
};

Computed compute(const std::string& name, at::ScalarType dtype, const Options& options = {}) {
  const std::string folder = parity_case(name);
  BoundModel model(folder, dtype);
  model.load(folder);
  model.model->set_buffer_dtype(options.buffers);
  FlatGradients events(model);
  std::vector<model::UnitStorage*> units;
  for (const auto& storage : model.storages) units.push_back(storage.get());
  hooks::UnitGraph graph(model.model->spec().order, units, events);
  if (options.recompute) graph.set_recompute(hooks::UnitGraph::every(1));
  zoo::Batch batch = batch_of(SafetensorsFile::open(folder + "/inputs.safetensors").value());
  batch.loss_scale = options.loss_scale;
  graph.begin(hooks::Phase::kForward);
  const zoo::LossOutput out = model.model->forward_loss(batch, graph);
  EXPECT_EQ(out.loss_sum.scalar_type(), at::kFloat);
  graph.backward(out.loss_sum * options.loss_scale);
  Computed computed{out.loss_sum.item<double>() / static_cast<double>(out.label_tokens), {}};
  for (const at::Tensor& gradient : events.gradients) {
    computed.gradients.push_back(gradient / options.loss_scale);
  }
  return computed;
}

// |a - b| / |b| over all units.
double distance(const Computed& a, const Computed& b) {
  return ((at::cat(a.gradients) - at::cat(b.gradients)).norm() / at::cat(b.gradients).norm())
      .item<double>();
}

struct Gpt2Precision : ::testing::TestWithParam<const char*> {};

TEST_P(Gpt2Precision, In16BitsIsCloseToFp32) {
  const Computed exact = compute(GetParam(), at::kFloat);
  const Computed bf16 = compute(GetParam(), at::kBFloat16);
  EXPECT_NEAR(bf16.loss, exact.loss, 5e-3);
  EXPECT_LT(distance(bf16, exact), 2e-2);
  EXPECT_GT(distance(bf16, exact), 1e-4) << "was it computed in bf16 at all?";
  const Computed fp16 = compute(GetParam(), at::kHalf, {.loss_scale = 64});
  EXPECT_NEAR(fp16.loss, exact.loss, 1e-3);
  EXPECT_LT(distance(fp16, exact), 3e-3);
}

TEST_P(Gpt2Precision, RecomputationGivesTheSameBitsIn16Bits) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Computed plain = compute(GetParam(), dtype, {.loss_scale = 64});
    const Computed again = compute(GetParam(), dtype, {.recompute = true, .loss_scale = 64});
    EXPECT_EQ(again.loss, plain.loss);
    for (size_t u = 0; u < plain.gradients.size(); ++u) {
      EXPECT_TRUE(at::equal(again.gradients[u], plain.gradients[u])) << at::toString(dtype) << u;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Precision,
                         ::testing::Values("gpt2-tied", "gpt2-untied-padded"));

TEST(Gpt2Buffers, MayKeepFp32) {
  const Computed own = compute("gpt2-untied-padded", at::kBFloat16);
  const Computed wide = compute("gpt2-untied-padded", at::kBFloat16, {.buffers = at::kFloat});
  EXPECT_NEAR(wide.loss, own.loss, 1e-3);
  EXPECT_LT(distance(wide, own), 1e-2);
}

TEST(Gpt2Logits, AreFp32WhateverTheUnitsAre) {
  const std::string folder = parity_case("gpt2-tied");
  const zoo::Batch batch = batch_of(SafetensorsFile::open(folder + "/inputs.safetensors").value());
  const at::Tensor expected =
      tensor_of(SafetensorsFile::open(folder + "/expected.safetensors").value(), "logits");
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    BoundModel model(folder, dtype);
    model.load(folder);
    const at::NoGradGuard no_gradients;
    const at::Tensor logits = model.model->logits(batch, model.runner);
    EXPECT_EQ(logits.scalar_type(), at::kFloat);
    EXPECT_LT((logits - expected).abs().max().item<double>(), 0.05);
    zoo::KeyValueCache cache;
    const at::Tensor ids = batch.input_ids.narrow(0, 0, 1);
    const at::Tensor next = model.model->next_logits(ids, at::arange(ids.size(1)).unsqueeze(0),
                                                     at::ones_like(ids), cache, model.runner);
    EXPECT_EQ(next.scalar_type(), at::kFloat);
    EXPECT_EQ(cache.keys[0].scalar_type(), dtype);
    EXPECT_LT((next[0] - expected[0][ids.size(1) - 1]).abs().max().item<double>(), 0.05);
  }
}

}  // namespace
}  // namespace strata::tests
