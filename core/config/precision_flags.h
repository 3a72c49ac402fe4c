// Flags of number formats and of the loss scale, and which of them go together.
#ifndef STRATA_CONFIG_PRECISION_FLAGS_H_
#define STRATA_CONFIG_PRECISION_FLAGS_H_

#include <string>
#include <vector>

#include "strata/config/config.h"
#include "strata/config/flags.h"

namespace strata::config {

// For commands that train; --precision itself stands with the placement.
void declare_precision(FlagSet& flags, PrecisionConfig& config);

// Makes other spellings ("32-true", "16-mixed") the names that are supported.
void check_precision_name(std::string& precision, Mistakes& mistakes);

// Refuses flags that the precision does not use, and values that do not go together. A file may
// have unused keys at their defaults, as effective_config() writes them.
void check_precision(FlagSet& flags, const std::string& precision, const PrecisionConfig& config,
                     Mistakes& mistakes);

// The arguments that make this configuration again, for a command that starts another.
std::vector<std::string> precision_arguments(const std::string& precision,
                                             const PrecisionConfig& config);

}  // namespace strata::config

#endif  // STRATA_CONFIG_PRECISION_FLAGS_H_
