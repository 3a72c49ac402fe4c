// Flags of optimizers, parameter groups, learning rates and clipping, and which of them go
// together.
#ifndef STRATA_CONFIG_OPTIMIZER_FLAGS_H_
#define STRATA_CONFIG_OPTIMIZER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/config/config.h"
#include "strata/config/flags.h"

namespace strata::config {

void declare_optimizer(FlagSet& flags, OptimizerConfig& config);

// Refuses flags that the optimizer, schedule or clipping that was asked for does not use, and
// values that do not go together; fills in the defaults that an optimizer has of its own. A file
// may have unused keys at their defaults, as effective_config() writes them.
void check_optimizer(FlagSet& flags, OptimizerConfig& config, std::optional<int64_t> max_steps,
                     Mistakes& mistakes);

// The arguments that make this configuration again, for a command that starts another.
std::vector<std::string> optimizer_arguments(const OptimizerConfig& config);

// The names that --optim takes.
std::vector<std::string> optimizer_names();

// One --param-group.
struct ParamGroup {
  std::string pattern;
  double lr_multiplier = 1;
  std::optional<double> weight_decay;
};

// "REGEX:lr=0.1,weight_decay=0"; the expression may have colons, the last one that numbers follow
// ends it.
//
// Returns   kInvalidArgument  follows the value: "has no ':lr=X' or ..."
Result<ParamGroup> parse_param_group(const std::string& text);

// "2", "0.5", "inf" (infinity).
//
// Returns   kInvalidArgument  follows the value
Result<double> parse_norm_type(const std::string& text);

}  // namespace strata::config

#endif  // STRATA_CONFIG_OPTIMIZER_FLAGS_H_
