// Declared flags: one declaration gives parsing, help, the config file's keys and the written
// configuration.
#ifndef STRATA_CONFIG_FLAGS_H_
#define STRATA_CONFIG_FLAGS_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "strata/base/status.h"

namespace strata::config {

// Where a flag's value goes; its type says how the text is read. A vector takes the flag
// repeatedly. Bytes are read with units.
struct Bytes {
  uint64_t* value;
};
using Target = std::variant<bool*, int*, int64_t*, std::optional<int64_t>*, double*,
                            std::optional<double>*, Bytes, std::string*, std::vector<std::string>*>;

enum class Source { kDefault, kFile, kCommandLine };

// One flag. The chained setters describe it:
//   flags.add("max-steps", &config.max_steps, "N", "optimizer steps to do").at_least(1);
class Flag {
 public:
  Flag(std::string name, Target target, std::string value_name, std::string help);

  Flag& at_least(double minimum);
  Flag& above(double minimum);
  Flag& at_most(double maximum);
  Flag& below(double maximum);
  Flag& one_of(std::vector<std::string> choices);
  // Another name of a choice, which stands for it; help names it, files get the choice.
  Flag& alias(std::string name, std::string choice);
  Flag& required();
  // Text of the default in --help, where the value does not say it.
  Flag& default_words(std::string words);
  Flag& only_on_command_line();  // not a key of the config file

  // Reads the text into the target. On error the target is as before; the message follows the
  // value: "must be at least 1".
  Status assign(const std::string& text, Source source);
  // Back to the declared default.
  void reset();

  bool is_switch() const { return std::holds_alternative<bool*>(target_); }
  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(target_); }
  bool is_number() const;  // written without quotes in the config file
  bool is_given() const { return source_ != Source::kDefault; }
  // Whether the value is the declared default, given or not.
  bool has_default_value() const { return toml() == default_toml_; }
  // The value as a value of the config file; "" if it is unset.
  std::string toml() const;
  std::string help_text() const;

  const std::string& name() const { return name_; }
  const std::string& value_name() const { return value_name_; }
  const std::string& group() const { return group_; }
  bool is_required() const { return is_required_; }
  bool is_in_file() const { return is_in_file_; }
  Source source() const { return source_; }

 private:
  friend class FlagSet;
  Status check_range(double value) const;
  // The choice that the text names.
  Result<std::string> choice_of(const std::string& text) const;

  std::string name_;
  Target target_;
  std::string value_name_;
  std::string help_;
  std::string group_;
  std::vector<std::string> choices_;
  std::vector<std::pair<std::string, std::string>> aliases_;  // name, choice
  std::string default_words_;
  double minimum_ = -std::numeric_limits<double>::infinity();
  double maximum_ = std::numeric_limits<double>::infinity();
  bool minimum_is_open_ = false;
  bool maximum_is_open_ = false;
  bool is_required_ = false;
  bool is_in_file_ = true;
  Source source_ = Source::kDefault;
  std::string default_toml_;
  std::variant<std::monostate, bool, int, int64_t, std::optional<int64_t>, double,
               std::optional<double>, uint64_t, std::string, std::vector<std::string>>
      default_value_;
};

// All flags of one command.
class FlagSet {
 public:
  FlagSet(std::string command, std::string summary);

  // The heading under which the next flags stand in help and in the written file.
  void group(std::string name) { group_ = std::move(name); }
  Flag& add(std::string name, Target target, std::string value_name, std::string help);
  // The one argument without a name, for example FILE.
  void positional(std::string value_name, std::string* target, std::string help);
  // At most one of the two may be given; the command line's beats the file's.
  void exclude(std::string a, std::string b, std::string hint);

  Flag* find(std::string_view name);
  Flag& at(std::string_view name);
  std::vector<std::string> names() const;

  const std::string& command() const { return command_; }
  std::string help() const;
  // The set values as a config file.
  std::string to_toml() const;

  struct Positional {
    std::string value_name, help;
    std::string* target = nullptr;
  };
  struct Exclusion {
    std::string a, b, hint;
  };
  const Positional& positional() const { return positional_; }
  const std::vector<Exclusion>& exclusions() const { return exclusions_; }
  std::deque<Flag>& flags() { return flags_; }
  const std::deque<Flag>& flags() const { return flags_; }

 private:
  std::string command_;
  std::string summary_;
  std::string group_ = "Options";
  std::deque<Flag> flags_;
  Positional positional_;
  std::vector<Exclusion> exclusions_;
};

// Every mistake of one command line.
class Mistakes {
 public:
  void add(std::string text) { texts_.push_back(std::move(text)); }
  bool empty() const { return texts_.empty(); }
  // Ok, or all of them in one message.
  Status status(const std::string& command) const;

 private:
  std::vector<std::string> texts_;
};

// Reads arguments and the file of --config into the targets. Adds what is wrong to `mistakes`;
// fails only if the file cannot be read.
Status parse_flags(FlagSet& flags, const std::vector<std::string>& args, Mistakes& mistakes);

}  // namespace strata::config

#endif  // STRATA_CONFIG_FLAGS_H_
