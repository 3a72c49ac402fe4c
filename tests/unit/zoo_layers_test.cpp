// The zoo's own loops and layers against LibTorch's operators.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <vector>

#include "strata/zoo/cpu_loops.h"
#include "strata/zoo/layers.h"
#include "strata/zoo/matmul.h"

namespace strata::zoo {
namespace {

std::vector<float> ramp(float first, float last, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = first + (last - first) * static_cast<float>(i) /
                            static_cast<float>(count - 1);
  }
  return values;
}

double exact_gelu_tanh(double x) {
  return x / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) *
                             (x + 0.044715 * x * x * x)));
}

TEST(GeluTanh, IsExactToAFewUnitsInTheLastPlace) {
  const std::vector<float> x = ramp(-6.0F, 12.0F, 20001);
  std::vector<float> out(x.size());
  cpu::gelu_tanh(x.data(), out.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact_gelu_tanh(x[i]);
    // Left of 0 the exponent's own rounding shows.
    EXPECT_NEAR(out[i], expected, (x[i] > 0 ? 3e-7 : 4e-6) * std::abs(expected))
        << x[i];
  }
}

TEST(GeluTanh, EndsAtZeroAndAtItsArgument) {
  const std::vector<float> x = {-1e30F, -100.0F, -20.0F, 20.0F, 100.0F, 1e30F};
  std::vector<float> out(x.size());
  std::vector<float> slope(x.size());
  const std::vector<float> ones(x.size(), 1.0F);
  cpu::gelu_tanh(x.data(), out.data(), 6);
  cpu::gelu_tanh_backward(ones.data(), x.data(), slope.data(), 6);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(out[i], 0.0F, 1e-7F) << x[i];
    EXPECT_EQ(out[i + 3], x[i + 3]);
    EXPECT_NEAR(slope[i], 0.0F, 1e-6F) << x[i];
    EXPECT_NEAR(slope[i + 3], 1.0F, 1e-6F) << x[i + 3];
  }
}

TEST(GeluTanh, PassesOnWhatIsNotANumber) {
  const std::vector<float> x(17, std::nanf(""));
  std::vector<float> out(17);
  cpu::gelu_tanh(x.data(), out.data(), 17);
  for (const float value : out)
    EXPECT_TRUE(std::isnan(value));
}

TEST(GeluTanh, HasLibTorchsGradients) {
  at::manual_seed(1);
  const at::Tensor x = (at::randn({37, 51}) * 3).set_requires_grad(true);
  const at::Tensor upper = at::randn({37, 51});
  const at::Tensor wide = x.detach().to(at::kDouble).set_requires_grad(true);
  const at::Tensor plain = torch::autograd::grad(
      {at::gelu(wide, "tanh")}, {wide}, {upper.to(at::kDouble)})[0];
  const at::Tensor own = torch::autograd::grad({gelu_tanh(x)}, {x}, {upper})[0];
  EXPECT_LE((own - plain).abs().max().item<double>(), 2e-6);
}

TEST(CrossEntropy, GivesLossAndGradientOfLongAndShortRows) {
  at::manual_seed(2);
  for (const int64_t vocab : {1, 15, 16, 17, 1000, 5003}) {
    const at::Tensor logits = (at::randn({vocab}) * 5).to(at::kFloat);
    const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), 0);
    const int64_t label = vocab / 2;
    at::Tensor own = logits.clone();
    const double loss =
        cpu::cross_entropy(own.mutable_data_ptr<float>(), vocab, label, true);
    EXPECT_NEAR(loss, -log_p[label].item<double>(), 1e-6) << vocab;
    at::Tensor expected = log_p.exp();
    expected[label] -= 1.0;
    EXPECT_LE((own - expected).abs().max().item<double>(), 2e-7) << vocab;
    at::Tensor untouched = logits.clone();
    EXPECT_EQ(cpu::cross_entropy(untouched.mutable_data_ptr<float>(), vocab,
                                 label, false),
              loss);
    EXPECT_TRUE(at::equal(untouched, logits));
  }
}

TEST(CrossEntropy, OfLogitsThatAreNotNumbersIsNotANumber) {
  std::vector<float> logits(100, 1.0F);
  logits[70] = std::nanf("");
  EXPECT_TRUE(std::isnan(cpu::cross_entropy(logits.data(), 100, 3, true)));
}

TEST(Product, IsThatOfLibTorchInEveryOrientation) {
  at::manual_seed(3);
  for (const int64_t size : {3, 130}) { // below and above what goes to oneDNN
    const at::Tensor a = at::randn({size, size + 5});
    const at::Tensor b = at::randn({size + 5, size + 2});
    const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const auto close = [&](const at::Tensor &got) {
      return at::allclose(got.to(at::kDouble), expected, 1e-4, 1e-4);
    };
    EXPECT_TRUE(close(product(a, b)));
    EXPECT_TRUE(close(product(a.t().contiguous().t(), b)));
    EXPECT_TRUE(close(product(a, b.t().contiguous().t())));
    at::Tensor sum = at::ones({size, size + 2});
    multiply_into(sum, a, b, true);
    EXPECT_TRUE(close(sum - 1));
    const at::Tensor bias = at::randn({size + 2});
    EXPECT_TRUE(close(affine(a, b, bias) - bias));
  }
}

TEST(Conv1d, HasLibTorchsGradients) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({4, 33, 64}).set_requires_grad(true);
  const at::Tensor w = at::randn({64, 192}).set_requires_grad(true);
  const at::Tensor bias = at::randn({192}).set_requires_grad(true);
  const at::Tensor upper = at::randn({4, 33, 192});
  const at::Tensor plain =
      at::addmm(bias, x.reshape({-1, 64}), w).view({4, 33, 192});
  const at::Tensor own = conv1d(x, w, bias);
  EXPECT_TRUE(at::allclose(own, plain, 1e-5, 1e-4));
  const auto expected = torch::autograd::grad({plain}, {x, w, bias}, {upper});
  const auto got = torch::autograd::grad({own}, {x, w, bias}, {upper});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-4)) << i;
}

TEST(Conv1d, LeavesFrozenWeightsWithoutGradient) {
  const at::Tensor x = at::randn({2, 8}).set_requires_grad(true);
  const at::Tensor w = at::randn({8, 4});
  const at::Tensor bias = at::randn({4}).set_requires_grad(true);
  conv1d(x, w, bias).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(bias.grad().defined());
}

at::Tensor plain_attention(const at::Tensor &qkv, int64_t heads,
                           double factor) {
  const at::Tensor parts =
      qkv.view({qkv.size(0), qkv.size(1), 3, heads, qkv.size(2) / 3 / heads})
          .permute({2, 0, 3, 1, 4});
  const at::Tensor scores =
      at::matmul(parts[0], parts[1].transpose(2, 3)) * factor;
  const at::Tensor hidden =
      at::ones({qkv.size(1), qkv.size(1)}, at::kBool).triu(1);
  const at::Tensor p = at::softmax(scores.masked_fill(hidden, -1e300), 3);
  return at::matmul(p, parts[2])
      .transpose(1, 2)
      .reshape({qkv.size(0), qkv.size(1), qkv.size(2) / 3});
}

TEST(CausalAttention, GivesValuesAndGradientsOfItsFormula) {
  at::manual_seed(5);
  for (const int64_t length :
       {1, 15, 16, 48, 49, 130}) { // parts of a block, one, several
    for (const int64_t width : {16, 32, 80}) {
      const at::Tensor qkv =
          at::randn({2, length, 3 * 2 * width}).set_requires_grad(true);
      const at::Tensor wide =
          qkv.detach().to(at::kDouble).set_requires_grad(true);
      const at::Tensor upper = at::randn({2, length, 2 * width});
      const double factor = 1.0 / std::sqrt(static_cast<double>(width));
      const at::Tensor expected = plain_attention(wide, 2, factor);
      const at::Tensor own = causal_attention(qkv, 2, factor);
      EXPECT_LE((own - expected).abs().max().item<double>(), 3e-6)
          << length << " " << width;
      const auto grads =
          torch::autograd::grad({expected}, {wide}, {upper.to(at::kDouble)});
      const auto got = torch::autograd::grad({own}, {qkv}, {upper});
      EXPECT_LE((got[0] - grads[0]).abs().max().item<double>(), 1e-5)
          << length << " " << width;
    }
  }
}

} // namespace
} // namespace strata::zoo
