// JSON from files and back (nlohmann-json), with errors that say where.
#ifndef STRATA_FORMATS_JSON_H_
#define STRATA_FORMATS_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "strata/base/status.h"

namespace strata::formats {

using Json = nlohmann::json;

// Parses one JSON document. `where` (a path, for example) opens each message.
//
// Returns invalid_argument with line and column; also for a key that stands twice in one object,
// which other parsers pass over in silence.
Result<Json> parse_json(std::string_view text, const std::string& where);

// Reads and parses a file; errors as read_file() and parse_json().
Result<Json> read_json(const std::string& path);

// Writes atomically, keys sorted, one value a line (indent 2), or in one line (indent -1), with a
// newline at the end. Bytes that are not UTF-8 in strings become U+FFFD.
Status write_json(const std::string& path, const Json& value, int indent = 2);

// The member `key` of the object `object`. `where` opens the message.
//
// Returns invalid_argument when `object` is not an object, has no such key, or holds another type;
// the message says which type is there.
Result<int64_t> get_int(const Json& object, const std::string& key, const std::string& where);
Result<double> get_double(const Json& object, const std::string& key, const std::string& where);
Result<bool> get_bool(const Json& object, const std::string& key, const std::string& where);
Result<std::string> get_string(const Json& object, const std::string& key,
                               const std::string& where);

// The same; an absent or null member gives `fallback`.
Result<int64_t> get_int_or(const Json& object, const std::string& key, int64_t fallback,
                           const std::string& where);
Result<double> get_double_or(const Json& object, const std::string& key, double fallback,
                             const std::string& where);
Result<bool> get_bool_or(const Json& object, const std::string& key, bool fallback,
                         const std::string& where);
Result<std::string> get_string_or(const Json& object, const std::string& key,
                                  const std::string& fallback, const std::string& where);

}  // namespace strata::formats

#endif  // STRATA_FORMATS_JSON_H_
