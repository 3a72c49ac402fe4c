// Numbers as people type them: the whole text must be the number.
#ifndef STRATA_CONFIG_NUMBERS_H_
#define STRATA_CONFIG_NUMBERS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/base/status.h"

namespace strata::config {

// "128", "-3". Refused: "", "12x", "1e3", "1.5", what does not fit.
Result<int64_t> parse_integer(std::string_view text);

// "5e-5", "1", "-0.5". Refused: "", "1.0x", nan, inf, what does not fit.
Result<double> parse_real(std::string_view text);

// "4096", "64 KiB", "1.5GB": decimal KB, MB, GB, TB; binary KiB, MiB, GiB, TiB; B or no unit for
// bytes; a blank between is allowed, letter case is not looked at. Refused: what is negative, below
// one byte's precision, or above 2^63.
Result<uint64_t> parse_bytes(std::string_view text);

// The shortest text that reads back as the same number: 5e-05, 1.0, 0.9.
std::string real_text(double value);

}  // namespace strata::config

#endif  // STRATA_CONFIG_NUMBERS_H_
