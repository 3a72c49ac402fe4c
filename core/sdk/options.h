// The options of a strategy: declared once as OptionInfo, given by the user as key=value text, read
// here as typed values.
//
//   const Options options(args, fsdp_options());
//   reshard_ = options.flag("reshard_after_forward");
//   limit_ = options.integer("limit_all_gathers", 1, 64);
//   prefetch_ = options.choice("backward_prefetch", {"backward_pre", "backward_post", "none"});
//
// Whatever is wrong with a key or a value is an Error(STRATA_E_INVALID_ARGUMENT) whose text has the
// strategy, the key, the value, what is allowed and a hint.
#ifndef STRATA_SDK_OPTIONS_H_
#define STRATA_SDK_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "strata/sdk/strategy.h"

namespace strata::sdk {

class Options {
 public:
  // Takes the user's pairs over the declared defaults. Throws on a key that is not declared, naming
  // the nearest declared key and all of them, and on a key given twice with different values.
  Options(const strata_create_args_t& args, const std::vector<OptionInfo>& declared);

  // Each of these takes a declared key and throws if its value is not of that kind.

  // true, 1, yes, on; false, 0, no, off.
  bool flag(std::string_view key) const;
  // A whole number in [least, most].
  int64_t integer(std::string_view key, int64_t least, int64_t most) const;
  // A finite number in [least, most], for example 0.5 or 1e-3.
  double number(std::string_view key, double least, double most) const;
  // Which of the words it is, as an index into `words`.
  size_t choice(std::string_view key, std::initializer_list<const char*> words) const;
  // Bytes: a number with an optional unit, B, K, M, G (or KB, KiB, ...), all powers of 1024;
  // 25M -> 26214400. A bare number counts bytes.
  uint64_t size(std::string_view key, uint64_t least, uint64_t most) const;
  // The value as it stands.
  const std::string& text(std::string_view key) const;

  // Whether the user gave the key (to its default value or another).
  bool is_given(std::string_view key) const;

 private:
  struct Value {
    std::string text;
    std::string default_text;
    bool is_given = false;
  };
  const Value& find(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const std::string& allowed) const;

  std::string strategy_;
  std::map<std::string, Value, std::less<>> values_;
};

// Number of single-character edits between two names (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b);

// The known name nearest to `name`, or "" if none is within a third of its length (at least 2
// edits).
std::string nearest(std::string_view name, const std::vector<std::string>& known);

}  // namespace strata::sdk

#endif  // STRATA_SDK_OPTIONS_H_
