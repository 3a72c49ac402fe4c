// Small text helpers that error messages and tables share.
#ifndef STRATA_BASE_TEXT_H_
#define STRATA_BASE_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// Number of single-character edits between two names (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b);

// The known name that is nearest to `name`, or "" if none is within a third of its length (at least
// 2 edits).
std::string nearest(std::string_view name, std::span<const std::string> known);

// "a, b, c"
std::string join(std::span<const std::string> parts, std::string_view separator = ", ");
std::vector<std::string> split(std::string_view text, char separator);

// Bytes for people, in binary units: 1536 -> "1.5 KiB".
std::string format_bytes(uint64_t bytes);

// A column-aligned table; the first row is the head. Numbers stay as given.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace strata::text

#endif  // STRATA_BASE_TEXT_H_
