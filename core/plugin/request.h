// What a user asks for with --strategy NAME[:key=value,...] and --set key=value.
#ifndef STRATA_PLUGIN_REQUEST_H_
#define STRATA_PLUGIN_REQUEST_H_

#include <string>
#include <utility>
#include <vector>

#include "strata/base/status.h"

namespace strata::plugin {

using OptionList = std::vector<std::pair<std::string, std::string>>;

struct StrategyRequest {
  std::string name;    // "fsdp"; "" if a file was given without one
  std::string file;    // "./libstrata_mine.so" of "./libstrata_mine.so#mine:key=value"; or ""
  OptionList options;  // in the order given, each key once

  // "fsdp:limit_all_gathers=2,forward_prefetch=true", for tables and messages.
  std::string text() const;
};

// Parses `--strategy` (a name, or FILE[#NAME] where FILE has a '/' or ends in ".so") and the values
// of all `--set` flags.
//
// Returns   kInvalidArgument  an empty name, key or option, a pair without '=', a key given twice
//                             with different values; the message says where
Result<StrategyRequest> parse_strategy_request(const std::string& strategy,
                                               const std::vector<std::string>& sets = {});

// "key=value,key=value" as pairs; `what` names the place in messages.
Result<OptionList> parse_options(const std::string& text, const std::string& what);

// "key=value,key=value".
std::string to_text(const OptionList& options);

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_REQUEST_H_
