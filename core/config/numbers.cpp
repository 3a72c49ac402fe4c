#include "strata/config/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace strata::config {
namespace {

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"", 1},      {"b", 1},        {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
    {"tb", 1e12}, {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

Result<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) return invalid_argument("is too large a number");
  if (error != std::errc() || stop != end) return invalid_argument("is not a whole number");
  return value;
}

Result<double> parse_real(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    return invalid_argument("is outside the numbers that a double holds");
  }
  if (error != std::errc() || stop != end) return invalid_argument("is not a number");
  if (!std::isfinite(value)) return invalid_argument("is not a finite number");
  return value;
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const size_t unit_begin = std::min(text.find_first_not_of(' ', number_end), text.size());
  const std::string unit_name = lower(text.substr(unit_begin));
  const Result<double> number = parse_real(text.substr(0, number_end));
  if (!number.ok()) {
    return invalid_argument("is not a size such as 4096, 64KiB or 1.5GB");
  }
  for (const ByteUnit& unit : kByteUnits) {
    if (unit.name != unit_name) continue;
    const double bytes = *number * unit.bytes;
    if (bytes >= 0x1p63) return invalid_argument("is more than 2^63 bytes");
    if (std::abs(bytes - std::round(bytes)) > 1e-6 * std::max(1.0, bytes)) {
      return invalid_argument("is not a whole number of bytes");
    }
    return static_cast<uint64_t>(std::llround(bytes));
  }
  return invalid_argument(
      fmt::format("has the unknown unit '{}'; known are B, KB, MB, GB, TB, KiB, MiB, GiB, TiB",
                  text.substr(unit_begin)));
}

std::string real_text(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  const bool is_plain = std::isfinite(value) && text.find_first_of(".e") == std::string::npos;
  if (is_plain) text += ".0";
  return text;
}

}  // namespace strata::config
