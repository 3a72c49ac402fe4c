// The arithmetic of CPU collectives against one element at a time, for every vector level.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"
#include "strata/ccl_cpu/reduce.h"

namespace strata::ccl {
namespace {

constexpr int32_t kDtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_BF16, STRATA_DTYPE_F16,
                               STRATA_DTYPE_F64, STRATA_DTYPE_I64,  STRATA_DTYPE_I32,
                               STRATA_DTYPE_U8};
constexpr int32_t kOps[] = {STRATA_REDUCE_SUM, STRATA_REDUCE_MIN, STRATA_REDUCE_MAX};
constexpr const char* kLevels[] = {"avx512", "avx2", "baseline"};

class EveryLevel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!limit_vector_level(GetParam())) GTEST_SKIP() << "this machine has no " << GetParam();
  }
  void TearDown() override { limit_vector_level(nullptr); }
};
INSTANTIATE_TEST_SUITE_P(CclReduce, EveryLevel, ::testing::ValuesIn(kLevels),
                         [](const auto& level) { return std::string(level.param); });

// ---- The reference: floats with `mantissa` bits after the point and exponents from `least` on
// ----

struct Format {
  int mantissa;
  int least;      // exponent of the smallest normal number
  double most;    // the first magnitude that rounds to infinity
  int exponents;  // bits
};
constexpr Format kBfloat16{7, -126, 0x1.FFp127, 8};
constexpr Format kFloat16{10, -14, 0x1.FFEp15, 5};

uint16_t encode(double value, const Format& format) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto infinity = static_cast<uint16_t>(((1 << format.exponents) - 1) << format.mantissa);
  const double magnitude = std::fabs(value);
  if (magnitude >= format.most) return sign | infinity;
  int exponent = magnitude == 0 ? format.least : std::ilogb(magnitude);
  exponent = std::max(exponent, format.least);
  // Ties to even is the default rounding of nearbyint.
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent));
  const auto biased = static_cast<uint16_t>((exponent - format.least) << format.mantissa);
  return static_cast<uint16_t>(sign | (biased + static_cast<uint16_t>(steps)));
}

double decode(uint16_t bits, const Format& format) {
  const int exponent = (bits & 0x7FFF) >> format.mantissa;
  const int steps = bits & ((1 << format.mantissa) - 1);
  const double magnitude = exponent == 0
                               ? std::ldexp(steps, format.least - format.mantissa)
                               : std::ldexp(steps + (1 << format.mantissa),
                                            exponent - 1 + format.least - format.mantissa);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename T>
T combine(T a, T b, int32_t op) {
  if (op == STRATA_REDUCE_MIN) return b < a ? b : a;
  if (op == STRATA_REDUCE_MAX) return b > a ? b : a;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename T>
void reference(const std::vector<const char*>& sources, char* out, size_t i, int32_t op) {
  T all;
  std::memcpy(&all, sources[0] + i * sizeof(T), sizeof(T));
  for (size_t s = 1; s < sources.size(); ++s) {
    T value;
    std::memcpy(&value, sources[s] + i * sizeof(T), sizeof(T));
    all = combine(all, value, op);
  }
  std::memcpy(out + i * sizeof(T), &all, sizeof(T));
}

void reference_16(const std::vector<const char*>& sources, char* out, size_t i, int32_t op,
                  const Format& format) {
  float all = 0;
  for (size_t s = 0; s < sources.size(); ++s) {
    uint16_t bits;
    std::memcpy(&bits, sources[s] + i * 2, 2);
    const auto value = static_cast<float>(decode(bits, format));
    all = s == 0 ? value : combine(all, value, op);
  }
  const uint16_t bits = encode(all, format);
  std::memcpy(out + i * 2, &bits, 2);
}

void reduce_reference(const std::vector<const char*>& sources, char* out, size_t count,
                      int32_t dtype, int32_t op) {
  for (size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case STRATA_DTYPE_F32: reference<float>(sources, out, i, op); break;
      case STRATA_DTYPE_F64: reference<double>(sources, out, i, op); break;
      case STRATA_DTYPE_I64: reference<int64_t>(sources, out, i, op); break;
      case STRATA_DTYPE_I32: reference<int32_t>(sources, out, i, op); break;
      case STRATA_DTYPE_U8: reference<uint8_t>(sources, out, i, op); break;
      case STRATA_DTYPE_BF16: reference_16(sources, out, i, op, kBfloat16); break;
      case STRATA_DTYPE_F16: reference_16(sources, out, i, op, kFloat16); break;
    }
  }
}

// Random values of a dtype: finite, of very different magnitude, subnormal 16-bit floats among
// them.
std::vector<char> random_values(int32_t dtype, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<char> bytes(count * element_size(dtype) + 16);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    const double real = std::ldexp(static_cast<double>(static_cast<int64_t>(bits)) / 0x1p63,
                                   static_cast<int>(random() % 40) - 24);
    const auto put = [&](auto value) {
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    };
    switch (dtype) {
      case STRATA_DTYPE_F32: put(static_cast<float>(real)); break;
      case STRATA_DTYPE_F64: put(real); break;
      case STRATA_DTYPE_BF16: put(encode(real, kBfloat16)); break;
      case STRATA_DTYPE_F16: put(encode(real, kFloat16)); break;
      case STRATA_DTYPE_I64: put(static_cast<int64_t>(bits)); break;
      case STRATA_DTYPE_I32: put(static_cast<int32_t>(bits)); break;
      default: put(static_cast<uint8_t>(bits)); break;
    }
  }
  return bytes;
}

std::vector<char> reduced(const std::vector<const char*>& sources, size_t count, int32_t dtype,
                          int32_t op, Caching caching = Caching::kKeep) {
  std::vector<char> out(count * element_size(dtype));
  std::vector<const void*> from(sources.begin(), sources.end());
  const Target target{out.data(), caching};
  reduce({dtype, op, from.data(), static_cast<uint32_t>(from.size()), &target, 1, count});
  return out;
}

TEST_P(EveryLevel, CombinesInRankOrderLikeOneElementAtATime) {
  for (const int32_t dtype : kDtypes) {
    for (const int32_t op : kOps) {
      for (const size_t ranks : {1, 2, 3, 5}) {
        std::vector<std::vector<char>> values;
        for (size_t r = 0; r < ranks; ++r) values.push_back(random_values(dtype, 2100, r + 1));
        std::vector<const char*> sources;
        for (const auto& v : values) sources.push_back(v.data());
        for (const size_t count : {0, 1, 7, 63, 1024, 2100}) {
          std::vector<char> expected(count * element_size(dtype));
          reduce_reference(sources, expected.data(), count, dtype, op);
          EXPECT_EQ(reduced(sources, count, dtype, op), expected)
              << "dtype " << dtype << " op " << op << " ranks " << ranks << " count " << count;
        }
      }
    }
  }
}

TEST_P(EveryLevel, TakesAnyAlignmentAndWritesPastTheCaches) {
  const size_t count = 1500;
  for (const int32_t dtype : kDtypes) {
    const auto a = random_values(dtype, count + 8, 1);
    const auto b = random_values(dtype, count + 8, 2);
    const std::vector<const char*> sources = {a.data() + element_size(dtype),
                                              b.data() + 3 * element_size(dtype)};
    std::vector<char> expected(count * element_size(dtype));
    reduce_reference(sources, expected.data(), count, dtype, STRATA_REDUCE_SUM);
    EXPECT_EQ(reduced(sources, count, dtype, STRATA_REDUCE_SUM, Caching::kBypass), expected);
    // Not even aligned to the element.
    const std::vector<const char*> odd = {a.data() + 1, a.data() + 1};
    std::vector<char> from_aligned(a.begin() + 1, a.end());
    EXPECT_EQ(reduced(odd, count, dtype, STRATA_REDUCE_MAX),
              reduced({from_aligned.data(), from_aligned.data()}, count, dtype, STRATA_REDUCE_MAX));
  }
}

TEST_P(EveryLevel, WritesEveryTargetEvenWhereTargetsAreSources) {
  const size_t count = 3000;
  for (const Caching caching : {Caching::kKeep, Caching::kBypass}) {
    for (const size_t ranks : {2, 3}) {
      std::vector<std::vector<char>> values;
      for (size_t r = 0; r < ranks; ++r)
        values.push_back(random_values(STRATA_DTYPE_F32, count, r));
      std::vector<const char*> sources;
      std::vector<const void*> from;
      std::vector<Target> to;
      for (auto& v : values) sources.push_back(v.data()), from.push_back(v.data());
      std::vector<char> expected(count * 4);
      reduce_reference(sources, expected.data(), count, STRATA_DTYPE_F32, STRATA_REDUCE_SUM);
      std::vector<char> apart(count * 4 + 4);
      to.push_back({apart.data() + 4, caching});
      for (auto& v : values) to.push_back({v.data(), caching});
      reduce({STRATA_DTYPE_F32, STRATA_REDUCE_SUM, from.data(), static_cast<uint32_t>(ranks),
              to.data(), static_cast<uint32_t>(to.size()), count});
      for (const Target& target : to) {
        EXPECT_EQ(std::memcmp(target.data, expected.data(), expected.size()), 0);
      }
    }
  }
}

TEST_P(EveryLevel, KeepsNaNAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {nan, 1, infinity, -infinity, 3e38F};
  const std::vector<float> b = {1, nan, 1, 1, 3e38F};
  for (const int32_t op : kOps) {
    const auto bytes =
        reduced({reinterpret_cast<const char*>(a.data()), reinterpret_cast<const char*>(b.data())},
                5, STRATA_DTYPE_F32, op);
    float out[5];
    std::memcpy(out, bytes.data(), sizeof(out));
    EXPECT_TRUE(std::isnan(out[0])) << op;
    EXPECT_TRUE(std::isnan(out[1])) << op;
    EXPECT_EQ(out[2], op == STRATA_REDUCE_MIN ? 1 : infinity);
    EXPECT_EQ(out[3], op == STRATA_REDUCE_MAX ? 1 : -infinity);
    EXPECT_EQ(out[4], op == STRATA_REDUCE_SUM ? infinity : 3e38F);
  }
}

TEST_P(EveryLevel, RoundsSixteenBitSumsOnceAndToInfinityWhenTooLarge) {
  // In fp32: 2048 + 1 + 1 = 2050. Rounded after each step it would stay at 2048.
  const std::vector<uint16_t> halves[] = {{encode(2048, kFloat16), encode(65504, kFloat16)},
                                          {encode(1, kFloat16), encode(65504, kFloat16)},
                                          {encode(1, kFloat16), encode(0, kFloat16)}};
  const auto bytes = reduced({reinterpret_cast<const char*>(halves[0].data()),
                              reinterpret_cast<const char*>(halves[1].data()),
                              reinterpret_cast<const char*>(halves[2].data())},
                             2, STRATA_DTYPE_F16, STRATA_REDUCE_SUM);
  uint16_t out[2];
  std::memcpy(out, bytes.data(), sizeof(out));
  EXPECT_EQ(decode(out[0], kFloat16), 2050);
  EXPECT_EQ(out[1], 0x7C00);
}

TEST(CclReduce, CopiesPastTheCachesByteForByte) {
  const auto source = random_values(STRATA_DTYPE_U8, 1000, 7);
  for (const size_t skip : {0, 1, 63}) {
    for (const size_t bytes : {0, 1, 63, 64, 65, 900}) {
      std::vector<char> target(1100, '#');
      copy(target.data() + skip, source.data() + 3, bytes, Caching::kBypass);
      EXPECT_EQ(std::memcmp(target.data() + skip, source.data() + 3, bytes), 0);
      EXPECT_EQ(target[skip + bytes], '#');
      EXPECT_EQ(std::string(target.data(), skip), std::string(skip, '#'));
    }
  }
}

}  // namespace
}  // namespace strata::ccl
