// Numbers as people type them.
#include <gtest/gtest.h>

#include <string>

#include "strata/config/numbers.h"

namespace strata::config {
namespace {

TEST(Numbers, ReadsWholeNumbers) {
  EXPECT_EQ(*parse_integer("128"), 128);
  EXPECT_EQ(*parse_integer("-3"), -3);
}

TEST(Numbers, RefusesWhatIsNotWhollyAWholeNumber) {
  for (const char* text : {"", " 1", "12x", "1e3", "1.5", "+", "0x10", "99999999999999999999"}) {
    EXPECT_FALSE(parse_integer(text).ok()) << text;
  }
}

TEST(Numbers, RefusesRealsThatAreNotFiniteNumbers) {
  EXPECT_EQ(*parse_real("5e-5"), 5e-5);
  for (const char* text : {"", "nan", "inf", "-inf", "1.0x", "1e999", "1,5", "."}) {
    EXPECT_FALSE(parse_real(text).ok()) << text;
  }
}

TEST(Numbers, ReadsSizesInDecimalAndBinaryUnits) {
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
  EXPECT_EQ(*parse_bytes("1KB"), 1000u);
  EXPECT_EQ(*parse_bytes("64 KiB"), 65536u);
  EXPECT_EQ(*parse_bytes("1.5gb"), 1500000000u);
  EXPECT_EQ(*parse_bytes("2TiB"), 2199023255552u);
}

TEST(Numbers, RefusesSizesThatMakeNoSense) {
  for (const char* text : {"", "KB", "-1KB", "1.5", "1 XB", "1KB2", "99999999TiB", "1.2.3MB"}) {
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  }
}

TEST(Numbers, WritesRealsThatReadBackTheSame) {
  for (const double value : {5e-5, 0.1, 1.0, 1e22, 1.0 / 3}) {
    EXPECT_EQ(*parse_real(real_text(value)), value);
  }
  EXPECT_EQ(real_text(1), "1.0");
}

}  // namespace
}  // namespace strata::config
