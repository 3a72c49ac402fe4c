#include "strata/optim/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <regex>
#include <utility>

#include "strata/base/text.h"

namespace strata::optim {
namespace {

constexpr size_t kNearestShown = 3;

// Edits that turn the pattern's letters into the nearest part of `name` (Sellers 1980).
size_t distance_to_part(const std::string& pattern, const std::string& name) {
  std::vector<size_t> row(name.size() + 1, 0);  // a part may begin anywhere
  for (size_t i = 1; i <= pattern.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t substituted = diagonal + (pattern[i - 1] == name[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return *std::min_element(row.begin(), row.end());  // and end anywhere
}

std::vector<std::string> names_of(const model::ModelSpec& spec) {
  std::vector<std::string> names;
  for (const model::UnitSpec& unit : spec.units) {
    for (const model::ParameterSpec& parameter : unit.parameters) names.push_back(parameter.name);
  }
  return names;
}

std::string nearest_names(const std::string& pattern, const model::ModelSpec& spec) {
  std::string letters;
  for (const char c : pattern) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.') letters += c;
  }
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& name : names_of(spec)) {
    found.emplace_back(distance_to_part(letters, name), name);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(found.size(), kNearestShown); ++i) {
    names.push_back(fmt::format("'{}'", found[i].second));
  }
  return text::join(names);
}

// Index of the group with this rule and decay, which is made if it is not there.
int group_index(ParameterGroups& out, const std::string& pattern, double lr_multiplier,
                double weight_decay) {
  for (size_t i = 0; i < out.groups.size(); ++i) {
    const ParameterGroup& group = out.groups[i];
    if (group.pattern == pattern && group.lr_multiplier == lr_multiplier &&
        group.weight_decay == weight_decay) {
      return static_cast<int>(i);
    }
  }
  out.groups.push_back({pattern, lr_multiplier, weight_decay});
  return static_cast<int>(out.groups.size()) - 1;
}

Result<std::vector<std::regex>> compile(const std::vector<GroupRule>& rules) {
  std::vector<std::regex> compiled;
  for (const GroupRule& rule : rules) {
    try {
      compiled.emplace_back(rule.pattern, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      return invalid_argument(
          fmt::format("--param-group '{}': is not a regular expression: {}. HINT: '.' matches any "
                      "letter, '\\.' a dot",
                      rule.pattern, error.what()));
    }
  }
  return compiled;
}

std::string shape_text(const model::ParameterSpec& parameter) {
  return fmt::format("({})", fmt::join(parameter.shape, ", "));
}

}  // namespace

Result<ParameterGroups> assign_groups(const model::ModelSpec& spec,
                                      const std::vector<GroupRule>& rules, double weight_decay) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<std::regex> expressions, compile(rules));
  std::vector<bool> is_found(rules.size(), false);
  ParameterGroups out;
  for (const model::UnitSpec& unit : spec.units) {
    out.group_of.emplace_back();
    for (const model::ParameterSpec& parameter : unit.parameters) {
      GroupRule rule;
      bool has_rule = false;
      for (size_t i = 0; i < rules.size(); ++i) {
        if (!std::regex_search(parameter.name, expressions[i])) continue;
        is_found[i] = true;  // also where an earlier rule has decided
        if (!std::exchange(has_rule, true)) rule = rules[i];
      }
      const double own_decay = parameter.shape.size() >= 2 ? weight_decay : 0;
      out.group_of.back().push_back(group_index(out, rule.pattern, rule.lr_multiplier,
                                                rule.weight_decay.value_or(own_decay)));
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (is_found[i]) continue;
    return invalid_argument(
        fmt::format("--param-group '{}': matches no parameter; the nearest are {}. HINT: "
                    "--show-param-groups without it lists all",
                    rules[i].pattern, nearest_names(rules[i].pattern, spec)));
  }
  return out;
}

std::string groups_table(const model::ModelSpec& spec, const ParameterGroups& groups) {
  std::vector<std::vector<std::string>> rows = {
      {"parameter", "shape", "lr x", "weight decay", "group"}};
  std::vector<int64_t> parameters(groups.groups.size(), 0);
  std::vector<int64_t> elements(groups.groups.size(), 0);
  for (size_t u = 0; u < spec.units.size(); ++u) {
    for (size_t i = 0; i < spec.units[u].parameters.size(); ++i) {
      const model::ParameterSpec& parameter = spec.units[u].parameters[i];
      const auto index = static_cast<size_t>(groups.group_of[u][i]);
      const ParameterGroup& group = groups.groups[index];
      rows.push_back({parameter.name, shape_text(parameter), fmt::format("{}", group.lr_multiplier),
                      fmt::format("{}", group.weight_decay),
                      fmt::format("{}{}", index, parameter.is_trainable ? "" : " (frozen)")});
      ++parameters[index];
      elements[index] += parameter.numel();
    }
  }
  std::vector<std::vector<std::string>> sums = {
      {"group", "expression", "parameters", "elements", "lr x", "weight decay"}};
  for (size_t i = 0; i < groups.groups.size(); ++i) {
    const ParameterGroup& group = groups.groups[i];
    sums.push_back({std::to_string(i), group.pattern.empty() ? "-" : group.pattern,
                    std::to_string(parameters[i]), std::to_string(elements[i]),
                    fmt::format("{}", group.lr_multiplier), fmt::format("{}", group.weight_decay)});
  }
  return text::format_table(rows) + "\n" + text::format_table(sums);
}

}  // namespace strata::optim
