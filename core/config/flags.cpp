#include "strata/config/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "strata/base/check.h"
#include "strata/base/text.h"
#include "strata/config/numbers.h"
#include "strata/config/toml_file.h"

namespace strata::config {
namespace {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string bound_text(double bound) {
  return bound == std::floor(bound) && std::abs(bound) < 1e15 ? fmt::format("{:.0f}", bound)
                                                              : real_text(bound);
}

std::string list_toml(const std::vector<std::string>& items) {
  std::vector<std::string> quoted;
  for (const std::string& item : items) quoted.push_back(toml_string(item));
  return "[" + text::join(quoted) + "]";
}

}  // namespace

Flag::Flag(std::string name, Target target, std::string value_name, std::string help)
    : name_(std::move(name)),
      target_(target),
      value_name_(std::move(value_name)),
      help_(std::move(help)),
      default_toml_(toml()) {
  std::visit(Overloaded{[&](Bytes bytes) { default_value_ = *bytes.value; },
                        [&](auto* value) { default_value_ = *value; }},
             target_);
}

Flag& Flag::at_least(double minimum) {
  minimum_ = minimum;
  return *this;
}
Flag& Flag::above(double minimum) {
  minimum_ = minimum;
  minimum_is_open_ = true;
  return *this;
}
Flag& Flag::at_most(double maximum) {
  maximum_ = maximum;
  return *this;
}
Flag& Flag::below(double maximum) {
  maximum_ = maximum;
  maximum_is_open_ = true;
  return *this;
}
Flag& Flag::one_of(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return *this;
}
Flag& Flag::alias(std::string name, std::string choice) {
  aliases_.emplace_back(std::move(name), std::move(choice));
  return *this;
}
Flag& Flag::required() {
  is_required_ = true;
  return *this;
}
Flag& Flag::default_words(std::string words) {
  default_words_ = std::move(words);
  return *this;
}
Flag& Flag::only_on_command_line() {
  is_in_file_ = false;
  return *this;
}

bool Flag::is_number() const {
  return !std::holds_alternative<std::string*>(target_) && !is_list() && !is_switch();
}

Status Flag::check_range(double value) const {
  if (minimum_is_open_ ? value <= minimum_ : value < minimum_) {
    return invalid_argument(fmt::format("must be {} {}", minimum_is_open_ ? "above" : "at least",
                                        bound_text(minimum_)));
  }
  if (maximum_is_open_ ? value >= maximum_ : value > maximum_) {
    return invalid_argument(
        fmt::format("must be {} {}", maximum_is_open_ ? "below" : "at most", bound_text(maximum_)));
  }
  return {};
}

Status Flag::assign(const std::string& text, Source source) {
  const auto integer = [&](auto set) -> Status {
    STRATA_ASSIGN_OR_RETURN(const int64_t value, parse_integer(text));
    STRATA_RETURN_IF_ERROR(check_range(static_cast<double>(value)));
    set(value);
    return {};
  };
  const auto real = [&](auto set) -> Status {
    STRATA_ASSIGN_OR_RETURN(const double value, parse_real(text));
    STRATA_RETURN_IF_ERROR(check_range(value));
    set(value);
    return {};
  };
  const auto read = Overloaded{
      [&](bool* target) -> Status {
        if (text != "true" && text != "false") return invalid_argument("is not true or false");
        *target = text == "true";
        return {};
      },
      [&](int* target) {
        return integer([&](int64_t value) { *target = static_cast<int>(value); });
      },
      [&](int64_t* target) { return integer([&](int64_t value) { *target = value; }); },
      [&](std::optional<int64_t>* target) {
        return integer([&](int64_t value) { *target = value; });
      },
      [&](double* target) { return real([&](double value) { *target = value; }); },
      [&](std::optional<double>* target) { return real([&](double value) { *target = value; }); },
      [&](Bytes target) -> Status {
        STRATA_ASSIGN_OR_RETURN(const uint64_t value, parse_bytes(text));
        STRATA_RETURN_IF_ERROR(check_range(static_cast<double>(value)));
        *target.value = value;
        return {};
      },
      [&](std::string* target) -> Status {
        if (text.empty()) return invalid_argument("is empty");
        STRATA_ASSIGN_OR_RETURN(*target, choice_of(text));
        return {};
      },
      [&](std::vector<std::string>* target) -> Status {
        if (text.empty()) return invalid_argument("is empty");
        if (source_ == Source::kDefault) target->clear();
        target->push_back(text);
        return {};
      }};
  STRATA_RETURN_IF_ERROR(std::visit(read, target_));
  source_ = source;
  return {};
}

Result<std::string> Flag::choice_of(const std::string& text) const {
  std::vector<std::string> names = choices_;
  for (const auto& [name, choice] : aliases_) {
    if (name == text) return choice;
    names.push_back(name);
  }
  if (names.empty() || std::find(names.begin(), names.end(), text) != names.end()) return text;
  const std::string near = text::nearest(text, names);
  return invalid_argument(fmt::format("is not one of {}{}", text::join(choices_),
                                      near.empty() ? "" : "; did you mean " + near + "?"));
}

void Flag::reset() {
  std::visit(Overloaded{[&](Bytes bytes) { *bytes.value = std::get<uint64_t>(default_value_); },
                        [&](auto* value) {
                          using Value = std::remove_pointer_t<decltype(value)>;
                          *value = std::get<Value>(default_value_);
                        }},
             target_);
  source_ = Source::kDefault;
}

std::string Flag::toml() const {
  return std::visit(
      Overloaded{[](const bool* value) -> std::string { return *value ? "true" : "false"; },
                 [](const int* value) { return std::to_string(*value); },
                 [](const int64_t* value) { return std::to_string(*value); },
                 [](const std::optional<int64_t>* value) {
                   return value->has_value() ? std::to_string(**value) : "";
                 },
                 [](const double* value) { return real_text(*value); },
                 [](const std::optional<double>* value) {
                   return value->has_value() ? real_text(**value) : "";
                 },
                 [](Bytes bytes) { return std::to_string(*bytes.value); },
                 [](const std::string* value) {
                   return value->empty() ? std::string() : toml_string(*value);
                 },
                 [](const std::vector<std::string>* value) {
                   return value->empty() ? std::string() : list_toml(*value);
                 }},
      target_);
}

std::string Flag::help_text() const {
  std::string text = help_;
  if (!choices_.empty()) text += ": " + text::join(choices_);
  for (const auto& [name, choice] : aliases_) text += fmt::format("; {} is {}", name, choice);
  if (is_list()) text += "; may be repeated";
  if (is_required_) return text + " (required)";
  std::string value = default_toml_;
  if (!is_number() && !is_list() && value.size() > 2) value = value.substr(1, value.size() - 2);
  if (const auto* bytes = std::get_if<Bytes>(&target_)) value = text::format_bytes(*bytes->value);
  if (!default_words_.empty()) return fmt::format("{} (default: {})", text, default_words_);
  if (is_switch() || value.empty()) return text;
  if (value.ends_with(".0")) value.resize(value.size() - 2);
  return fmt::format("{} (default: {})", text, value);
}

FlagSet::FlagSet(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {}

Flag& FlagSet::add(std::string name, Target target, std::string value_name, std::string help) {
  STRATA_CHECK(find(name) == nullptr) << "flag --" << name << " is declared twice";
  Flag& flag = flags_.emplace_back(std::move(name), target, std::move(value_name), std::move(help));
  flag.group_ = group_;
  return flag;
}

void FlagSet::positional(std::string value_name, std::string* target, std::string help) {
  positional_ = {std::move(value_name), std::move(help), target};
}

void FlagSet::exclude(std::string a, std::string b, std::string hint) {
  exclusions_.push_back({std::move(a), std::move(b), std::move(hint)});
}

Flag* FlagSet::find(std::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name() == name) return &flag;
  }
  return nullptr;
}

Flag& FlagSet::at(std::string_view name) {
  Flag* flag = find(name);
  STRATA_CHECK(flag != nullptr) << "no flag --" << name;
  return *flag;
}

std::vector<std::string> FlagSet::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name());
  return names;
}

std::string FlagSet::to_toml() const {
  std::string out;
  std::string group;
  for (const Flag& flag : flags_) {
    const std::string value = flag.toml();
    if (value.empty() || !flag.is_in_file()) continue;
    if (flag.group() != group) {
      out += fmt::format("{}# {}\n", group.empty() ? "" : "\n", flag.group());
      group = flag.group();
    }
    out += fmt::format("{} = {}\n", flag.name(), value);
  }
  return out;
}

Status Mistakes::status(const std::string& command) const {
  if (texts_.empty()) return {};
  const std::string help = fmt::format("HINT: {} --help lists the flags", command);
  if (texts_.size() == 1) {
    const bool has_hint = texts_[0].find("HINT:") != std::string::npos;
    return invalid_argument(
        fmt::format("{}: {}{}", command, texts_[0], has_hint ? "" : ". " + help));
  }
  std::string message = fmt::format("{}: {} mistakes", command, texts_.size());
  for (const std::string& text : texts_) message += "\n  " + text;
  return invalid_argument(message + "\n" + help);
}

}  // namespace strata::config
