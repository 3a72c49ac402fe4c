#include "strata/plugin/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "strata/base/text.h"

namespace strata::plugin {
namespace {

bool is_file(const std::string& head) {
  return head.find('/') != std::string::npos || head.ends_with(".so");
}

// Adds a pair; the same pair twice is legal, the same key with another value is not.
Status add_option(OptionList& options, const std::string& pair, const std::string& what) {
  const size_t equals = pair.find('=');
  if (equals == std::string::npos || equals == 0) {
    return invalid_argument(fmt::format(
        "{}: '{}' is not of the form key=value. HINT: for example bucket_cap_mb=25", what, pair));
  }
  const std::string key = pair.substr(0, equals);
  const std::string value = pair.substr(equals + 1);
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const auto& option) { return option.first == key; });
  if (found == options.end()) {
    options.emplace_back(key, value);
  } else if (found->second != value) {
    return invalid_argument(fmt::format("{}: '{}' is given as '{}' and as '{}'. HINT: keep one",
                                        what, key, found->second, value));
  }
  return {};
}

}  // namespace

Result<OptionList> parse_options(const std::string& text, const std::string& what) {
  OptionList options;
  if (text.empty()) return options;
  for (const std::string& pair : text::split(text, ',')) {
    STRATA_RETURN_IF_ERROR(add_option(options, pair, what));
  }
  return options;
}

Result<StrategyRequest> parse_strategy_request(const std::string& strategy,
                                               const std::vector<std::string>& sets) {
  StrategyRequest request;
  const size_t colon = strategy.find(':');
  const std::string head = strategy.substr(0, colon);
  const std::string what = fmt::format("--strategy {}", strategy);
  if (colon != std::string::npos) {
    if (colon + 1 == strategy.size()) {
      return invalid_argument(what + ": nothing follows the ':'. HINT: NAME or NAME:key=value,...");
    }
    STRATA_ASSIGN_OR_RETURN(request.options, parse_options(strategy.substr(colon + 1), what));
  }
  const size_t hash = head.find('#');
  if (is_file(head.substr(0, hash))) {
    request.file = head.substr(0, hash);
    if (hash != std::string::npos) request.name = head.substr(hash + 1);
  } else {
    request.name = head;
  }
  if (request.file.empty() && request.name.empty()) {
    return invalid_argument(
        fmt::format("--strategy '{}' has no name. HINT: NAME[:key=value,...]; "
                    "`strata plugins list` shows the names",
                    strategy));
  }
  for (const std::string& set : sets) {
    STRATA_RETURN_IF_ERROR(add_option(request.options, set, fmt::format("--set {}", set)));
  }
  return request;
}

std::string to_text(const OptionList& options) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : options) pairs.push_back(key + "=" + value);
  return text::join(pairs, ",");
}

std::string StrategyRequest::text() const {
  std::string out = file;
  if (!name.empty()) out += (file.empty() ? "" : "#") + name;
  if (!options.empty()) out += ":" + to_text(options);
  return out;
}

}  // namespace strata::plugin
