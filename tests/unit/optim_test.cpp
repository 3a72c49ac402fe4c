// Norm, schedules and AdamW over partitions: results do not depend on how units are sliced.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "strata/optim/adamw.h"
#include "strata/optim/norm.h"
#include "strata/optim/schedule.h"

namespace strata::optim {
namespace {

// Random cuts of [0, blocks * 64) at multiples of 64.
std::vector<int64_t> random_cuts(int64_t blocks, int pieces, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, blocks * 64};
  for (int i = 1; i < pieces; ++i) {
    cuts.push_back(std::uniform_int_distribution<int64_t>(0, blocks)(random) * 64);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

std::vector<float> random_floats(size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  std::uniform_int_distribution<int> exponent(-60, 40);
  std::normal_distribution<float> normal;
  for (float& value : values) value = std::ldexp(normal(random), exponent(random));
  return values;
}

model::Partition slice(std::vector<float>& gradient, int64_t begin, int64_t end) {
  model::Partition partition;
  partition.offset = begin;
  partition.numel = end - begin;
  partition.gradient = gradient.data() + begin;
  return partition;
}

TEST(ExactSum, AddsLikeRationalNumbers) {
  ExactSum sum;
  sum.add(1e60);
  for (int i = 0; i < 1000; ++i) sum.add(std::ldexp(1.0, -290));
  sum.add(3.0);
  EXPECT_EQ(ExactSum::value(sum.limbs()), 1e60);
  ExactSum small;
  for (int i = 0; i < 3; ++i) small.add(std::ldexp(1.0, -298));
  EXPECT_EQ(ExactSum::value(small.limbs()), std::ldexp(3.0, -298));
}

TEST(Norm, IsTheSameNumberForEverySlicing) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const int64_t blocks = 200;
    std::vector<float> gradient = random_floats(static_cast<size_t>(blocks * 64), random);
    NormAccumulator whole;
    whole.add(slice(gradient, 0, blocks * 64));
    const double expected = NormAccumulator::norm(whole.limbs());
    // Each piece on a rank of its own, summed in a random order.
    const std::vector<int64_t> cuts = random_cuts(blocks, 7, random);
    std::vector<std::vector<int64_t>> parts;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      NormAccumulator part;
      part.add(slice(gradient, cuts[i], cuts[i + 1]));
      parts.push_back(part.limbs());
    }
    std::shuffle(parts.begin(), parts.end(), random);
    std::vector<int64_t> sum(parts[0].size(), 0);
    for (const auto& part : parts) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    EXPECT_EQ(NormAccumulator::norm(sum), expected);
  }
}

TEST(Norm, CountsReplicatedBlocksOnce) {
  std::mt19937 random(12);
  std::vector<float> gradient = random_floats(64 * 10, random);
  NormAccumulator whole;
  whole.add(slice(gradient, 0, 640));
  std::vector<int64_t> sum(whole.limbs().size(), 0);
  for (int replica = 0; replica < 3; ++replica) {
    model::Partition partition = slice(gradient, 0, 640);
    partition.replicas = 3;
    partition.replica = replica;
    NormAccumulator part;
    part.add(partition);
    const auto limbs = part.limbs();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += limbs[i];
  }
  EXPECT_EQ(NormAccumulator::norm(sum), NormAccumulator::norm(whole.limbs()));
}

TEST(Norm, AgreesWithADirectSum) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(64 * 33);
  long double squares = 0;
  for (float& value : gradient) {
    value = normal(random);
    squares += static_cast<long double>(value) * value;
  }
  NormAccumulator norm;
  norm.add(slice(gradient, 0, 64 * 33));
  EXPECT_NEAR(NormAccumulator::norm(norm.limbs()), std::sqrt(static_cast<double>(squares)), 1e-12);
}

TEST(Norm, OfInfiniteOrMissingNumbersIsNotANumber) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> gradient(128, 1.0F);
    gradient[100] = bad;
    NormAccumulator norm;
    norm.add(slice(gradient, 0, 128));
    EXPECT_TRUE(std::isnan(NormAccumulator::norm(norm.limbs())));
  }
}

TEST(Norm, OfTheLargestFloatsIsFinite) {
  std::vector<float> gradient(64 * 1000, std::numeric_limits<float>::max());
  NormAccumulator norm;
  norm.add(slice(gradient, 0, 64 * 1000));
  const double expected = std::sqrt(64e3) * static_cast<double>(std::numeric_limits<float>::max());
  EXPECT_NEAR(NormAccumulator::norm(norm.limbs()) / expected, 1.0, 1e-12);
}

TEST(Schedule, FollowsWarmUpAndCosine) {
  const Schedule schedule{"cosine", 0.003, 5, 20};
  EXPECT_EQ(learning_rate(schedule, 0), 0.0);
  EXPECT_NEAR(learning_rate(schedule, 3), 0.0018, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 5), 0.003, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 12), 0.003 * (1 + std::cos(M_PI * 7 / 15)) / 2, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 20), 0.0, 1e-15);
}

TEST(Schedule, LinearEndsAtZeroAndConstantStays) {
  EXPECT_NEAR(learning_rate({"linear", 1.0, 0, 10}, 9), 0.1, 1e-15);
  EXPECT_EQ(learning_rate({"linear", 1.0, 0, 10}, 50), 0.0);
  EXPECT_EQ(learning_rate({"constant", 1.0, 2, 10}, 9), 1.0);
}

// One unit with weights, a bias, a frozen weight and a weight that is no multiple of 64.
struct Unit {
  Unit() {
    spec.units = {{"u", {{"w", {10, 20}}, {"b", {70}}, {"f", {5, 5}, false}, {"v", {3, 50}}}}};
    spec.order = {0};
    layouts = {model::make_flat_layout(spec.units[0], 64, 64)};
    numel = layouts[0].numel;
  }
  model::ModelSpec spec;
  std::vector<model::FlatLayout> layouts;
  int64_t numel = 0;
};

// Trains `steps` steps over slices with these cuts; returns all masters.
std::vector<float> train(const Unit& unit, const std::vector<int64_t>& cuts, int steps) {
  std::vector<float> masters(static_cast<size_t>(unit.numel), 0.0F);
  std::vector<float> gradients(masters.size(), 0.0F);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& out) {
    for (size_t p = 0; p < unit.spec.units[0].parameters.size(); ++p) {
      for (int64_t i = 0; i < unit.spec.units[0].parameters[p].numel(); ++i) {
        out[static_cast<size_t>(unit.layouts[0].offsets[p] + i)] = normal(random);
      }
    }
  };
  fill(masters);
  std::vector<model::Partition> partitions;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    partitions.push_back(slice(gradients, cuts[i], cuts[i + 1]));
    partitions.back().master = masters.data() + cuts[i];
  }
  const auto allocate = [](int64_t numel) -> Result<AdamW::Memory> {
    return AdamW::Memory(new float[static_cast<size_t>(numel)](), std::default_delete<float[]>());
  };
  AdamWOptions options;
  options.weight_decay = 0.1;
  auto adamw = AdamW::create(options, unit.spec, unit.layouts, partitions, allocate).value();
  for (int step = 0; step < steps; ++step) {
    fill(gradients);
    EXPECT_TRUE(adamw->step(0.01, 0.125).ok());
  }
  return masters;
}

TEST(AdamW, GivesTheSameBitsForEverySlicing) {
  const Unit unit;
  std::mt19937 random(21);
  const std::vector<float> whole = train(unit, {0, unit.numel}, 5);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(train(unit, random_cuts(unit.numel / 64, 3, random), 5), whole);
  }
}

TEST(AdamW, LeavesFrozenParametersAndPaddingAlone) {
  const Unit unit;
  const std::vector<float> before = train(unit, {0, unit.numel}, 0);
  const std::vector<float> after = train(unit, {0, unit.numel}, 3);
  for (int64_t i = 0; i < unit.spec.units[0].parameters[2].numel(); ++i) {
    const auto at = static_cast<size_t>(unit.layouts[0].offsets[2] + i);
    EXPECT_EQ(before[at], after[at]);
  }
  for (const model::FlatLayout::Gap& gap : unit.layouts[0].gaps) {
    for (int64_t i = gap.first; i < gap.last; ++i) EXPECT_EQ(after[static_cast<size_t>(i)], 0.0F);
  }
}

TEST(AdamW, FollowsItsFormula) {
  const Unit unit;
  std::vector<float> got = train(unit, {0, unit.numel}, 3);
  // The same in double, element by element.
  std::vector<float> start = train(unit, {0, unit.numel}, 0);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const auto& parameter : unit.spec.units[0].parameters) {
    for (int64_t i = 0; i < parameter.numel(); ++i) normal(random);  // the masters
  }
  std::vector<std::vector<double>> gradients;
  for (int step = 0; step < 3; ++step) {
    gradients.emplace_back();
    for (const auto& parameter : unit.spec.units[0].parameters) {
      for (int64_t i = 0; i < parameter.numel(); ++i) gradients.back().push_back(normal(random));
    }
  }
  size_t flat = 0;
  for (size_t p = 0; p < unit.spec.units[0].parameters.size(); ++p) {
    const auto& parameter = unit.spec.units[0].parameters[p];
    for (int64_t i = 0; i < parameter.numel(); ++i, ++flat) {
      if (!parameter.is_trainable) continue;
      const auto at = static_cast<size_t>(unit.layouts[0].offsets[p] + i);
      double weight = start[at];
      double m = 0;
      double v = 0;
      for (int step = 1; step <= 3; ++step) {
        const double g = gradients[static_cast<size_t>(step - 1)][flat] * 0.125;
        if (parameter.shape.size() >= 2) weight -= 0.01 * 0.1 * weight;
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        const double corrected = std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8;
        weight -= 0.01 * (m / (1 - std::pow(0.9, step))) / corrected;
      }
      EXPECT_NEAR(got[at], weight, 2e-6) << parameter.name << " " << i;
    }
  }
}

}  // namespace
}  // namespace strata::optim
