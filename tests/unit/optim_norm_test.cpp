// Norms and clipping over partitions: results do not depend on how units are sliced.
#include <cmath>
#include <limits>
#include <random>

#include "strata/optim/clipping.h"
#include "strata/optim/norm.h"
#include "tests/unit/optim_fixture.h"

namespace strata::optim {
namespace {

std::vector<float> random_floats(size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  std::uniform_int_distribution<int> exponent(-60, 40);
  std::normal_distribution<float> normal;
  for (float& value : values) value = std::ldexp(normal(random), exponent(random));
  return values;
}

// Every rank's gradient_norm() of its slice; `counts` are added up on the way.
double norm_over_ranks(std::vector<float>& gradient, const std::vector<int64_t>& cuts, double type,
                       int replicas = 1) {
  const int ranks = replicas > 1 ? replicas : static_cast<int>(cuts.size()) - 1;
  Meeting meeting(ranks);
  std::vector<double> norms(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const size_t at = replicas > 1 ? 0 : static_cast<size_t>(rank);
      model::Partition partition = slice(gradient, cuts[at], cuts[at + 1]);
      partition.replicas = replicas;
      partition.replica = replicas > 1 ? rank : 0;
      MeetingReducer reducer(meeting);
      int64_t count = rank + 1;
      const auto norm = gradient_norm({partition}, type, std::span(&count, 1), reducer);
      EXPECT_EQ(count, ranks * (ranks + 1) / 2);
      norms[static_cast<size_t>(rank)] = norm.value();
    });
  }
  threads.clear();
  for (const double norm : norms) EXPECT_TRUE(norm == norms[0] || std::isnan(norms[0]));
  return norms[0];
}

constexpr double kTypes[] = {1, 2, 3, 0.5, 4.25, 100, kInfinityNorm};

TEST(Norm, OfEveryTypeIsTheSameNumberForEverySlicing) {
  std::mt19937 random(14);
  std::vector<float> gradient = random_floats(64 * 90, random);
  const std::vector<int64_t> whole = {0, 64 * 90};
  for (const double type : kTypes) {
    const double expected = norm_over_ranks(gradient, whole, type);
    for (const int ranks : {2, 3, 5}) {
      EXPECT_EQ(norm_over_ranks(gradient, random_cuts(90, ranks, random), type), expected) << type;
    }
    EXPECT_EQ(norm_over_ranks(gradient, whole, type, 3), expected) << type << " replicated";
  }
}

TEST(Norm, OfEveryTypeAgreesWithItsDefinition) {
  std::mt19937 random(15);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(64 * 33);
  for (float& value : gradient) value = normal(random);
  for (const double type : kTypes) {
    long double expected = 0;
    for (const float value : gradient) {
      const long double magnitude = std::fabs(static_cast<long double>(value));
      expected = type == kInfinityNorm
                     ? std::max(expected, magnitude)
                     : expected + std::pow(magnitude, static_cast<long double>(type));
    }
    if (type != kInfinityNorm) expected = std::pow(expected, 1 / static_cast<long double>(type));
    const double found = norm_over_ranks(gradient, {0, 64 * 33}, type);
    EXPECT_NEAR(found / static_cast<double>(expected), 1, 1e-13) << type;
  }
}

TEST(Norm, OfEveryTypeOfTheLargestFloatsIsFiniteAndOfInfiniteOnesIsNotANumber) {
  for (const double type : kTypes) {
    std::vector<float> gradient(64 * 8, std::numeric_limits<float>::max());
    const double expected = type == kInfinityNorm ? 1 : std::pow(512.0, 1 / type);
    EXPECT_NEAR(norm_over_ranks(gradient, {0, 256, 512}, type) /
                    static_cast<double>(std::numeric_limits<float>::max()) / expected,
                1, 1e-12)
        << type;
    for (const float bad : {-std::numeric_limits<float>::infinity(), std::nanf("")}) {
      gradient[300] = bad;
      EXPECT_TRUE(std::isnan(norm_over_ranks(gradient, {0, 256, 512}, type))) << type;
    }
    std::vector<float> zeros(128, 0.0F);
    EXPECT_EQ(norm_over_ranks(zeros, {0, 64, 128}, type), 0) << type;
  }
}

TEST(Clipping, ByValueScalesFirst) {
  std::vector<float> gradient(64, 0.0F);
  gradient[0] = 6;
  gradient[1] = -6;
  gradient[2] = 1;
  const GradientScale scale = gradient_scale({.max_value = 2}, 100, 2);
  float scratch[kChunk];
  const float* const g =
      ScaledGradient(Gradient(slice(gradient, 0, 64)), scale).read(0, 64, scratch);
  EXPECT_EQ(ScaledGradient::factor(scale), 1) << "it is done";
  EXPECT_EQ(g[0], 2);
  EXPECT_EQ(g[1], -2);
  EXPECT_EQ(g[2], 0.5);
  EXPECT_EQ(g[3], 0);
  EXPECT_EQ(gradient[0], 6) << "reading wrote";
}

TEST(Clipping, DividesByTheTokensWhateverItDoes) {
  EXPECT_EQ(gradient_scale({}, 4, 8).factor, 0.125);
  EXPECT_EQ(gradient_scale({.max_norm = 1}, 0.5, 8).factor, 0.125);
  EXPECT_EQ(gradient_scale({.max_norm = 1}, 4, 8).factor, clip_factor(4, 1) / 8);
  EXPECT_EQ(gradient_scale({.max_norm = 1}, 4, 8).max_value, 0);
}

TEST(Clipping, ByNormLeavesSmallGradientsAlone) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_NEAR(clip_factor(4, 1), 1 / (4 + 1e-6), 1e-15);
}

// ---- 16-bit gradients ----

TEST(Gradients, OfSixteenBitsAreReadExactly) {
  std::vector<uint16_t> all;
  for (int bits = 0; bits < 65536; ++bits) all.push_back(static_cast<uint16_t>(bits));
  std::vector<float> found(all.size());
  for (const int32_t dtype : {STRATA_DTYPE_BF16, STRATA_DTYPE_F16}) {
    Gradient(all.data(), dtype).copy(0, 65536, found.data());
    const std::vector<float> expected = from_16_bits(all, dtype);
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << i;
      } else {
        EXPECT_EQ(found[i], expected[i]) << "dtype " << dtype << ", bits " << i;
        EXPECT_EQ(std::signbit(found[i]), std::signbit(expected[i])) << i;
      }
    }
  }
}

TEST(Norm, OfSixteenBitGradientsIsThatOfTheirValues) {
  std::mt19937 random(16);
  std::normal_distribution<float> normal;
  std::vector<float> values(64 * 150);
  for (float& value : values) value = normal(random);
  for (const int32_t dtype : {STRATA_DTYPE_BF16, STRATA_DTYPE_F16}) {
    std::vector<uint16_t> bits = to_16_bits(values, dtype);
    std::vector<float> rounded = from_16_bits(bits, dtype);
    model::Partition partition = slice(rounded, 0, 64 * 150);
    NoReducer reducer;
    for (const double type : kTypes) {
      const double expected =
          gradient_norm({slice(rounded, 0, 64 * 150)}, type, {}, reducer).value();
      partition.gradient = bits.data();
      partition.gradient_dtype = dtype;
      EXPECT_EQ(gradient_norm({partition}, type, {}, reducer).value(), expected) << type;
    }
  }
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

}  // namespace
}  // namespace strata::optim
