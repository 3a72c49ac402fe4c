// UTF-8: what is well formed, and what to show in place of what is not (Unicode 15, section 3.9).
#ifndef STRATA_DATA_UTF8_H_
#define STRATA_DATA_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::data {

// The first character of a text that is not empty: `length` bytes. If not valid, these are the
// longest beginning of a character, at least 1 byte, for which one U+FFFD stands.
struct Utf8Step {
  size_t length;
  bool is_valid;
};
Utf8Step utf8_step(std::string_view text);

// Bytes up to the first that is not well formed; text.size() if all are.
size_t valid_utf8_prefix(std::string_view text);

// Each broken character becomes U+FFFD, the rest stays.
std::string to_valid_utf8(std::string_view text);

}  // namespace strata::data

#endif  // STRATA_DATA_UTF8_H_
