// Groups of flags that several commands share, and what is checked of them without opening a file.
#ifndef STRATA_CONFIG_GROUPS_H_
#define STRATA_CONFIG_GROUPS_H_

#include <cstdint>
#include <string>

#include "strata/config/config.h"
#include "strata/config/flags.h"

namespace strata::config {

void declare_model(FlagSet& flags, std::string& model);
void declare_data(FlagSet& flags, DataConfig& config);
void declare_sequence_length(FlagSet& flags, int64_t& value);
// Of every wait for a peer: from a millisecond to what any clock here can count to.
void declare_timeout(FlagSet& flags, double& seconds);
void declare_placement(FlagSet& flags, PlacementConfig& config);
void declare_batch(FlagSet& flags, BatchConfig& config);
void declare_seed(FlagSet& flags, int64_t& seed);

// Refuses in words what is known, but not there yet.
void check_placement(FlagSet& flags, PlacementConfig& config, Mistakes& mistakes);

// Options of a strategy make no sense without its name.
void check_strategy(const PlacementConfig& config, Mistakes& mistakes);

}  // namespace strata::config

#endif  // STRATA_CONFIG_GROUPS_H_
