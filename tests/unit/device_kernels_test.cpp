// Copies, casts, sums and scalings against arithmetic in double, value by value.
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

constexpr int32_t kDtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_BF16, STRATA_DTYPE_F16};

// A binary format by its digits: `digits` bits of significand, exponents from `least` to `most`.
struct Format {
  int digits;
  int least;
  int most;
  int mantissa_bits() const { return digits - 1; }
};
constexpr Format kBF16{8, -126, 127};
constexpr Format kF16{11, -14, 15};

const Format& format_of(int32_t dtype) { return dtype == STRATA_DTYPE_BF16 ? kBF16 : kF16; }

double decode(uint16_t bits, const Format& format) {
  const int mantissa_bits = format.mantissa_bits();
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent == format.most - format.least + 2) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, format.least - mantissa_bits);
  return sign *
         std::ldexp((1 << mantissa_bits) + mantissa, exponent - 1 + format.least - mantissa_bits);
}

// Rounds to the nearest value of the format, ties to even.
double round_to(double value, const Format& format) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), format.least);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits());
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) >= std::ldexp(1.0, format.most + 1)) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

double round_to(double value, int32_t dtype) {
  if (dtype == STRATA_DTYPE_F32) return static_cast<float>(value);
  return round_to(value, format_of(dtype));
}

// Memory of `count` elements of a dtype.
struct Elements {
  int32_t dtype;
  std::vector<uint32_t> words;
  Elements(int32_t dtype, size_t count) : dtype(dtype), words(count) {}
  void* data() { return words.data(); }
  float* floats() { return reinterpret_cast<float*>(words.data()); }
  uint16_t* halves() { return reinterpret_cast<uint16_t*>(words.data()); }
  void set_bits(size_t i, uint32_t bits) {
    if (dtype == STRATA_DTYPE_F32) {
      words[i] = bits;
    } else {
      halves()[i] = static_cast<uint16_t>(bits);
    }
  }
  double get(size_t i) {
    return dtype == STRATA_DTYPE_F32 ? floats()[i] : decode(halves()[i], format_of(dtype));
  }
};

// Every 16-bit pattern; for F32 all special values, all ties and neighbours of ties of both 16-bit
// formats, and random patterns.
Elements interesting(int32_t dtype) {
  if (dtype != STRATA_DTYPE_F32) {
    Elements all(dtype, 65536);
    for (uint32_t bits = 0; bits < 65536; ++bits) all.set_bits(bits, bits);
    return all;
  }
  std::vector<uint32_t> bits = {0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000,
                                0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x00000001,
                                0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x477FF000, 0x477FEFFF,
                                0x33000000, 0x33000001, 0x32FFFFFF, 0x387FFFFF, 0x38800000};
  for (uint32_t top = 0; top < 65536; top += 3) {
    for (const uint32_t low : {0x0000u, 0x7FFFu, 0x8000u, 0x8001u, 0x0FFFu, 0x1000u, 0x1001u}) {
      bits.push_back((top << 16) | low);
    }
  }
  std::mt19937 random(11);
  for (int i = 0; i < 100000; ++i) bits.push_back(static_cast<uint32_t>(random()));
  Elements some(dtype, bits.size());
  some.words = bits;
  return some;
}

::testing::AssertionResult same(double expected, double actual) {
  const bool is_same = std::isnan(expected)
                           ? std::isnan(actual)
                           : expected == actual && std::signbit(expected) == std::signbit(actual);
  if (is_same) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << std::hexfloat << expected << " != " << actual;
}

TEST(DeviceKernels, CastsEveryPairOfDtypesToTheNearestEven) {
  const auto host = make_host();
  for (const int32_t src_dtype : kDtypes) {
    Elements src = interesting(src_dtype);
    for (const int32_t dst_dtype : kDtypes) {
      Elements dst(dst_dtype, src.words.size());
      ASSERT_EQ(kernels_table().cast(host->abi(), host->compute_stream(), dst.data(), dst_dtype,
                                     src.data(), src_dtype, src.words.size()),
                STRATA_OK);
      for (size_t i = 0; i < src.words.size(); ++i) {
        ASSERT_TRUE(same(round_to(src.get(i), dst_dtype), dst.get(i)))
            << "from dtype " << src_dtype << " to " << dst_dtype << ", element " << i;
      }
    }
  }
}

TEST(DeviceKernels, NotANumberKeepsItsSign) {
  const auto host = make_host();
  const uint32_t src[] = {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFC00000};
  for (const int32_t dtype : {STRATA_DTYPE_BF16, STRATA_DTYPE_F16}) {
    uint16_t dst[4] = {};
    ASSERT_TRUE(host->cast(host->compute_stream(), dst, dtype, src, STRATA_DTYPE_F32, 4).ok());
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(std::isnan(decode(dst[i], format_of(dtype))));
      EXPECT_EQ(dst[i] >> 15, src[i] >> 31);
    }
  }
}

TEST(DeviceKernels, AddsInTheDtypeOfTheDestination) {
  const auto host = make_host();
  std::mt19937 random(5);
  for (const int32_t dst_dtype : kDtypes) {
    for (const int32_t src_dtype : kDtypes) {
      constexpr size_t kCount = 20000;
      Elements dst(dst_dtype, kCount);
      Elements src(src_dtype, kCount);
      for (size_t i = 0; i < kCount; ++i) {
        dst.set_bits(i, static_cast<uint32_t>(random()));
        src.set_bits(i, static_cast<uint32_t>(random()));
      }
      Elements before = dst;
      ASSERT_EQ(kernels_table().add(host->abi(), host->compute_stream(), dst.data(), dst_dtype,
                                    src.data(), src_dtype, kCount),
                STRATA_OK);
      for (size_t i = 0; i < kCount; ++i) {
        // Exact in double but for far exponents, where the sum is the larger one either way.
        const double addend = round_to(src.get(i), dst_dtype);
        const float sum = static_cast<float>(before.get(i)) + static_cast<float>(addend);
        ASSERT_TRUE(same(round_to(sum, dst_dtype), dst.get(i)))
            << before.get(i) << " + " << src.get(i) << ", dtypes " << dst_dtype << " " << src_dtype;
      }
    }
  }
}

TEST(DeviceKernels, ScalesByASinglePrecisionFactor) {
  const auto host = make_host();
  for (const int32_t dtype : kDtypes) {
    Elements values = interesting(dtype);
    Elements before = values;
    ASSERT_EQ(kernels_table().scale(host->abi(), host->compute_stream(), values.data(), dtype,
                                    1.0 / 3, values.words.size()),
              STRATA_OK);
    for (size_t i = 0; i < values.words.size(); ++i) {
      const float product = static_cast<float>(before.get(i)) * static_cast<float>(1.0 / 3);
      ASSERT_TRUE(same(round_to(product, dtype), values.get(i))) << before.get(i);
    }
  }
}

TEST(DeviceKernels, TouchNothingBesideTheirElements) {
  const auto host = make_host();
  const strata_stream_t stream = host->compute_stream();
  for (uint64_t count = 0; count < 80; ++count) {
    // One element in, so that vectors start unaligned.
    std::vector<float> src(count + 2, 1.5F);
    std::vector<uint16_t> half(count + 2, 0x7777);
    std::vector<float> dst(count + 2, -7.0F);
    ASSERT_TRUE(host->cast(stream, half.data() + 1, STRATA_DTYPE_BF16, src.data() + 1,
                           STRATA_DTYPE_F32, count)
                    .ok());
    EXPECT_EQ(half.front(), 0x7777);
    EXPECT_EQ(half.back(), 0x7777);
    ASSERT_TRUE(host->copy(stream, dst.data() + 1, src.data() + 1, count * 4).ok());
    ASSERT_TRUE(host->add(stream, dst.data() + 1, STRATA_DTYPE_F32, half.data() + 1,
                          STRATA_DTYPE_BF16, count)
                    .ok());
    ASSERT_TRUE(host->scale(stream, dst.data() + 1, STRATA_DTYPE_F32, 2, count).ok());
    EXPECT_EQ(dst.front(), -7.0F);
    EXPECT_EQ(dst.back(), -7.0F);
    for (uint64_t i = 1; i <= count; ++i) ASSERT_EQ(dst[i], 6.0F);
    ASSERT_TRUE(host->zero(stream, dst.data() + 1, count * 4).ok());
    EXPECT_EQ(dst.front(), -7.0F);
    EXPECT_EQ(dst.back(), -7.0F);
    for (uint64_t i = 1; i <= count; ++i) ASSERT_EQ(dst[i], 0.0F);
  }
}

TEST(DeviceKernels, RunInTheStreamInWhichTheyAreQueued) {
  const auto host = make_host();
  const strata_stream_t side = *host->create_stream("side");
  const strata_event_t done = *host->create_event();
  std::vector<float> a(1000, 3.0F);
  std::vector<float> b(1000, 0.0F);
  Gate gate;
  ASSERT_EQ(enqueue(side, [&] { gate.pass(); }), STRATA_OK);
  ASSERT_TRUE(host->copy(side, b.data(), a.data(), 4000).ok());
  ASSERT_TRUE(host->scale(side, b.data(), STRATA_DTYPE_F32, 2, 1000).ok());
  ASSERT_TRUE(host->add(side, b.data(), STRATA_DTYPE_F32, a.data(), STRATA_DTYPE_F32, 1000).ok());
  ASSERT_TRUE(host->record(done, side).ok());
  EXPECT_FALSE(*host->query(done));
  gate.open();
  ASSERT_TRUE(host->synchronize(done, "the kernels").ok());
  EXPECT_EQ(b[999], 9.0F);
  host->destroy_event(done);
  EXPECT_TRUE(host->destroy_stream(side).ok());
}

TEST(DeviceKernels, RefuseWhatTheyCannotDo) {
  const auto host = make_host();
  const strata_stream_t stream = host->compute_stream();
  float data[8] = {};
  EXPECT_EQ(host->cast(stream, data, STRATA_DTYPE_F32, data, STRATA_DTYPE_I64, 1).code(),
            Code::kUnsupported);
  EXPECT_EQ(host->scale(stream, data, 99, 1, 1).code(), Code::kUnsupported);
  EXPECT_EQ(host->copy(stream, data, nullptr, 4).code(), Code::kInvalidArgument);
  EXPECT_EQ(host->copy(stream, data + 1, data, 8).code(), Code::kInvalidArgument);
  EXPECT_TRUE(host->copy(stream, data + 2, data, 8).ok());
  EXPECT_TRUE(host->copy(stream, nullptr, nullptr, 0).ok());
  EXPECT_EQ(host->zero(data, data, 4).code(), Code::kInvalidArgument);  // not a stream
}

}  // namespace
}  // namespace strata::device
