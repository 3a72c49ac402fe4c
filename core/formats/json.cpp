#include "strata/formats/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "strata/formats/file.h"

namespace strata::formats {
namespace {

// "line 3, column 14" of a byte offset.
std::string place(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  size_t line = 1, column = 1;
  for (size_t i = 0; i < offset; ++i) {
    ++column;
    if (text[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  return fmt::format("line {}, column {}", line, column);
}

// What nlohmann's message says after its own prefix "[json...] parse error at line 1, column 2: ".
std::string reason(const std::string& what) {
  const size_t prefix = what.find("column ");
  const size_t colon = what.find(": ", prefix == std::string::npos ? 0 : prefix);
  return colon == std::string::npos ? what : what.substr(colon + 2);
}

// What is read here nests less than ten levels; printing a value recurses.
constexpr int kDeepest = 100;

// Looks on while a text is parsed: remembers the keys of every open object, to find one that comes
// twice, and leaves out what nests too deeply.
class Watcher {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth >= kDeepest) {
      is_too_deep_ = true;
      return false;
    }
    switch (event) {
      case Json::parse_event_t::object_start: open_.emplace_back(); break;
      case Json::parse_event_t::object_end: open_.pop_back(); break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!open_.back().insert(key).second && first_.empty()) first_ = key, found_ = true;
        break;
      }
      default: break;
    }
    return true;
  }
  bool is_too_deep() const { return is_too_deep_; }
  bool found() const { return found_; }
  const std::string& first() const { return first_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string first_;
  bool found_ = false;
  bool is_too_deep_ = false;
};

Result<const Json*> member(const Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object())
    return invalid_argument(
        fmt::format("{}: expected an object with '{}', but it is {}. HINT: "
                    "check the file",
                    where, key, object.type_name()));
  const auto it = object.find(key);
  if (it == object.end())
    return invalid_argument(
        fmt::format("{}: '{}' is missing. HINT: add it, or check the file", where, key));
  return &*it;
}

Status wrong_type(const Json& value, const std::string& key, const char* wanted,
                  const std::string& where) {
  return invalid_argument(
      fmt::format("{}: '{}' is {} ({}), not {}. HINT: correct its value", where, key,
                  value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60),
                  value.type_name(), wanted));
}

bool is_absent(const Json& object, const std::string& key) {
  if (!object.is_object()) return false;
  const auto it = object.find(key);
  return it == object.end() || it->is_null();
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& where) {
  Watcher keys;
  try {
    Json value = Json::parse(text.begin(), text.end(), std::ref(keys));
    if (keys.is_too_deep())
      return invalid_argument(
          fmt::format("{}: its values nest more than {} levels deep. HINT: the file is damaged",
                      where, kDeepest));
    if (keys.found())
      return invalid_argument(
          fmt::format("{}: the key '{}' stands twice in one object. HINT: keep one of them", where,
                      keys.first()));
    return value;
  } catch (const Json::parse_error& error) {
    // The offset counts from 1 and points behind the last byte that was read.
    return invalid_argument(
        fmt::format("{}: not JSON at {}: {}. HINT: the file is damaged or cut "
                    "off",
                    where, place(text, error.byte > 0 ? error.byte - 1 : 0), reason(error.what())));
  } catch (const Json::exception& error) {
    return invalid_argument(fmt::format("{}: not JSON: {}. HINT: the file is damaged or cut off",
                                        where, reason(error.what())));
  }
}

Result<Json> read_json(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_json(text, path);
}

Status write_json(const std::string& path, const Json& value, int indent) {
  return write_file_atomically(
      path, value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<int64_t> get_int(const Json& object, const std::string& key, const std::string& where) {
  STRATA_ASSIGN_OR_RETURN(const Json* value, member(object, key, where));
  const bool too_large =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value->is_number_integer() || too_large)
    return wrong_type(*value, key, "an integer of 64 bits", where);
  return value->get<int64_t>();
}

Result<double> get_double(const Json& object, const std::string& key, const std::string& where) {
  STRATA_ASSIGN_OR_RETURN(const Json* value, member(object, key, where));
  if (!value->is_number()) return wrong_type(*value, key, "a number", where);
  return value->get<double>();
}

Result<bool> get_bool(const Json& object, const std::string& key, const std::string& where) {
  STRATA_ASSIGN_OR_RETURN(const Json* value, member(object, key, where));
  if (!value->is_boolean()) return wrong_type(*value, key, "true or false", where);
  return value->get<bool>();
}

Result<std::string> get_string(const Json& object, const std::string& key,
                               const std::string& where) {
  STRATA_ASSIGN_OR_RETURN(const Json* value, member(object, key, where));
  if (!value->is_string()) return wrong_type(*value, key, "a string", where);
  return value->get<std::string>();
}

Result<int64_t> get_int_or(const Json& object, const std::string& key, int64_t fallback,
                           const std::string& where) {
  return is_absent(object, key) ? Result<int64_t>(fallback) : get_int(object, key, where);
}

Result<double> get_double_or(const Json& object, const std::string& key, double fallback,
                             const std::string& where) {
  return is_absent(object, key) ? Result<double>(fallback) : get_double(object, key, where);
}

Result<bool> get_bool_or(const Json& object, const std::string& key, bool fallback,
                         const std::string& where) {
  return is_absent(object, key) ? Result<bool>(fallback) : get_bool(object, key, where);
}

Result<std::string> get_string_or(const Json& object, const std::string& key,
                                  const std::string& fallback, const std::string& where) {
  return is_absent(object, key) ? Result<std::string>(fallback) : get_string(object, key, where);
}

}  // namespace strata::formats
