// Boost.Program_options splits arguments and lays out help; values are read by the flags
// themselves, so that one report has every mistake.
#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "strata/base/text.h"
#include "strata/config/flags.h"
#include "strata/config/toml_file.h"

namespace po = boost::program_options;

namespace strata::config {
namespace {

constexpr int kStyle = po::command_line_style::allow_long |
                       po::command_line_style::long_allow_adjacent |
                       po::command_line_style::long_allow_next;
constexpr unsigned kLineLength = 110;
constexpr std::string_view kStrategyOptions = "set";  // "key=value" pairs; a table in the file

struct Given {
  std::string name;  // "" for an argument without a flag
  std::string value;
  bool has_value = true;
};

enum class Use { kParsing, kHelp };

po::options_description describe(const FlagSet& flags, Use use) {
  po::options_description all(kLineLength, kLineLength / 2);
  std::vector<std::string> groups;
  for (const Flag& flag : flags.flags()) {
    if (std::find(groups.begin(), groups.end(), flag.group()) == groups.end()) {
      groups.push_back(flag.group());
    }
  }
  for (const std::string& group : groups) {
    po::options_description part(group, kLineLength, kLineLength / 2);
    for (const Flag& flag : flags.flags()) {
      if (flag.group() != group) continue;
      const std::string help = flag.help_text();
      if (!flag.is_switch()) {
        auto* value = po::value<std::string>()->value_name(flag.value_name());
        part.add_options()(flag.name().c_str(), value, help.c_str());
      } else if (use == Use::kHelp) {
        part.add_options()(flag.name().c_str(), help.c_str());
      } else {
        auto* value = po::value<std::string>()->implicit_value("true");
        part.add_options()(flag.name().c_str(), value, help.c_str());
      }
    }
    all.add(part);
  }
  return all;
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// '_' in a flag's name is as good as '-'.
std::vector<std::string> normalized(const std::vector<std::string>& args) {
  std::vector<std::string> out = args;
  for (std::string& arg : out) {
    if (arg == "--") break;
    if (!arg.starts_with("--")) continue;
    const size_t end = std::min(arg.find('='), arg.size());
    arg = with_dashes(arg.substr(0, end)) + arg.substr(end);
  }
  return out;
}

std::string unknown_flag(const FlagSet& flags, const std::string& name) {
  const std::string near = text::nearest(name, flags.names());
  return near.empty() ? fmt::format("--{}: unknown flag", name)
                      : fmt::format("--{}: unknown flag, did you mean --{}?", name, near);
}

// A flag whose value would be the next flag.
const po::option* find_swallower(const std::vector<po::option>& options) {
  const auto found = std::find_if(options.begin(), options.end(), [](const po::option& option) {
    return option.position_key < 0 && option.original_tokens.size() == 2 &&
           option.original_tokens[1].starts_with("--");
  });
  return found == options.end() ? nullptr : &*found;
}

std::vector<Given> to_given(const std::vector<po::option>& options) {
  std::vector<Given> given;
  for (const po::option& option : options) {
    if (option.position_key >= 0 || option.string_key.empty()) {
      for (const std::string& token : option.original_tokens) given.push_back({"", token});
    } else if (option.unregistered) {
      given.push_back({option.string_key, "", false});
    } else {
      given.push_back({option.string_key, option.value.empty() ? "true" : option.value[0]});
    }
  }
  return given;
}

// Splits the arguments. A flag without a value is noted and taken out, and the rest is split again.
std::vector<Given> split_arguments(const FlagSet& flags, const std::vector<std::string>& args,
                                   Mistakes& mistakes, std::set<std::string>& mentioned) {
  const po::options_description description = describe(flags, Use::kParsing);
  std::vector<std::string> rest = normalized(args);
  while (true) {
    std::string valueless;
    try {
      const po::parsed_options parsed = po::command_line_parser(rest)
                                            .options(description)
                                            .style(kStyle)
                                            .allow_unregistered()
                                            .run();
      const po::option* swallower = find_swallower(parsed.options);
      if (swallower == nullptr) return to_given(parsed.options);
      valueless = swallower->original_tokens[0];
    } catch (const po::error_with_option_name& error) {
      valueless = error.get_option_name();
      if (valueless.empty()) valueless = "--";  // "--=" alone
    }
    const auto token = std::find_if(rest.begin(), rest.end(), [&](const std::string& arg) {
      return arg == valueless || arg == valueless + "=";
    });
    mistakes.add(fmt::format("{}: needs a value", valueless));
    mentioned.insert(valueless.substr(2));
    if (token == rest.end()) return {};
    rest.erase(token);
  }
}

// "must be at least 1" and the like, behind the place and the value.
std::string value_mistake(const std::string& place, const std::string& value, const Status& why) {
  return fmt::format("{} {}: {}", place, value.empty() ? "''" : value, why.message());
}

using Kind = FileEntry::Kind;

// "" or why this kind of value does not suit the flag.
std::string kind_mistake(const Flag& flag, const FileEntry& entry) {
  if (flag.is_switch()) return entry.kind == Kind::kBool ? "" : "must be true or false";
  if (flag.is_number()) {
    return entry.kind == Kind::kInteger || entry.kind == Kind::kReal
               ? ""
               : "must be a number, without quotes";
  }
  if (flag.is_list()) {
    if (entry.kind == Kind::kList || entry.kind == Kind::kText) return "";
    if (flag.name() == kStrategyOptions && entry.kind == Kind::kTable) return "";
    return "must be a list of strings";
  }
  return entry.kind == Kind::kText || entry.kind == Kind::kInteger ? ""
                                                                   : "must be a string in quotes";
}

using Values = std::map<std::string, std::vector<std::string>>;

// The values that an entry of the file gives and the command line leaves standing: --set wins key
// by key.
std::vector<std::string> values_of(const Flag& flag, const FileEntry& entry,
                                   const Values& on_command_line) {
  const auto rivals = on_command_line.find(flag.name());
  const bool is_overruled = rivals != on_command_line.end();
  if (!flag.is_list()) return is_overruled ? std::vector<std::string>{} : std::vector{entry.text};
  std::vector<std::string> items =
      entry.kind == Kind::kText ? std::vector{entry.text} : entry.items;
  if (!is_overruled) return items;
  if (flag.name() != kStrategyOptions) return {};
  std::erase_if(items, [&](const std::string& item) {
    return std::any_of(rivals->second.begin(), rivals->second.end(), [&](const std::string& rival) {
      return text::split(rival, '=')[0] == text::split(item, '=')[0];
    });
  });
  return items;
}

void apply_file(FlagSet& flags, const std::string& path, const std::vector<FileEntry>& entries,
                const Values& on_command_line, Mistakes& mistakes,
                std::set<std::string>& mentioned) {
  std::map<std::string, std::string> seen;
  for (const FileEntry& entry : entries) {
    const std::string place = fmt::format("{}:{}: {}", path, entry.line, entry.key);
    const std::string name = with_dashes(entry.key);
    Flag* flag = flags.find(name);
    if (flag == nullptr || !flag->is_in_file()) {
      const std::string near = text::nearest(name, flags.names());
      mistakes.add(place + ": unknown key" +
                   (near.empty() || flag != nullptr ? "" : ", did you mean " + near + "?"));
      continue;
    }
    if (const auto [first, is_new] = seen.emplace(name, entry.key); !is_new) {
      mistakes.add(fmt::format("{}: is given twice, as {} too", place, first->second));
      continue;
    }
    mentioned.insert(name);
    const std::string wrong_kind = kind_mistake(*flag, entry);
    if (!wrong_kind.empty()) {
      mistakes.add(fmt::format("{}: {}", place, wrong_kind));
      continue;
    }
    for (const std::string& value : values_of(*flag, entry, on_command_line)) {
      const Status status = flag->assign(value, Source::kFile);
      if (!status.ok()) mistakes.add(value_mistake(place + " =", value, status));
    }
  }
}

void check_exclusions(FlagSet& flags, Mistakes& mistakes) {
  for (const FlagSet::Exclusion& pair : flags.exclusions()) {
    Flag& a = flags.at(pair.a);
    Flag& b = flags.at(pair.b);
    if (!a.is_given() || !b.is_given()) continue;
    if (a.source() == b.source()) {
      mistakes.add(fmt::format("--{} and --{} exclude each other: {}", pair.a, pair.b, pair.hint));
    } else {
      (a.source() == Source::kFile ? a : b).reset();
    }
  }
}

}  // namespace

std::string FlagSet::help() const {
  std::ostringstream out;
  out << summary_ << "\n\nUsage: " << command_;
  for (const Flag& flag : flags_) {
    if (flag.is_required()) out << " --" << flag.name() << " " << flag.value_name();
  }
  if (positional_.target != nullptr) out << " " << positional_.value_name;
  if (!flags_.empty()) out << " [flags]";
  out << "\n";
  if (positional_.target != nullptr) {
    out << "\n" << positional_.value_name << ": " << positional_.help << "\n";
  }
  out << describe(*this, Use::kHelp);
  return out.str();
}

namespace {

// Sorts arguments by flag; gives the positional one its place.
Values collect_values(FlagSet& flags, const std::vector<Given>& all, Mistakes& mistakes) {
  Values values;
  bool follows_unknown = false;
  for (const Given& given : all) {
    const bool may_be_its_value = std::exchange(follows_unknown, !given.has_value);
    if (!given.has_value) {
      mistakes.add(unknown_flag(flags, given.name));
    } else if (!given.name.empty()) {
      values[given.name].push_back(given.value);
    } else if (const auto& place = flags.positional();
               place.target != nullptr && place.target->empty()) {
      *place.target = given.value;
    } else if (!may_be_its_value) {
      mistakes.add(fmt::format("'{}': unexpected argument", given.value));
    }
  }
  return values;
}

void apply_command_line(FlagSet& flags, const Values& values, Mistakes& mistakes) {
  for (const auto& [name, texts] : values) {
    Flag& flag = flags.at(name);
    const bool differ =
        std::adjacent_find(texts.begin(), texts.end(), std::not_equal_to<>()) != texts.end();
    if (!flag.is_list() && differ) {
      mistakes.add(
          fmt::format("--{}: is given with different values: {}", name, text::join(texts)));
      continue;
    }
    for (const std::string& text : texts) {
      const Status status = flag.assign(text, Source::kCommandLine);
      if (!status.ok()) mistakes.add(value_mistake("--" + name, text, status));
    }
  }
}

}  // namespace

Status parse_flags(FlagSet& flags, const std::vector<std::string>& args, Mistakes& mistakes) {
  std::set<std::string> mentioned;  // flags with a value, right or wrong
  const Values values =
      collect_values(flags, split_arguments(flags, args, mistakes, mentioned), mistakes);
  for (const auto& [name, texts] : values) mentioned.insert(name);
  if (const auto file = values.find("config"); file != values.end()) {
    const std::string& path = file->second.back();
    STRATA_ASSIGN_OR_RETURN(const auto entries, read_toml_file(path));
    apply_file(flags, path, entries, values, mistakes, mentioned);
  }
  apply_command_line(flags, values, mistakes);
  check_exclusions(flags, mistakes);
  for (const Flag& flag : flags.flags()) {
    if (flag.is_required() && !mentioned.contains(flag.name())) {
      mistakes.add(fmt::format("--{} {}: is required", flag.name(), flag.value_name()));
    }
  }
  if (flags.positional().target != nullptr && flags.positional().target->empty()) {
    mistakes.add(fmt::format("{}: is required", flags.positional().value_name));
  }
  return {};
}

}  // namespace strata::config
