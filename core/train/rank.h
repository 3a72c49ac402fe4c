// What one rank stands on: who it is, how ranks meet, and the host that it lends to its strategy.
#ifndef STRATA_TRAIN_RANK_H_
#define STRATA_TRAIN_RANK_H_

#include <memory>
#include <string>

#include "strata/base/status.h"
#include "strata/base/store.h"
#include "strata/base/world.h"
#include "strata/config/config.h"
#include "strata/device/host.h"
#include "strata/plugin/capabilities.h"
#include "strata/plugin/error_sink.h"
#include "strata/plugin/registry.h"
#include "strata/plugin/strategy_instance.h"

namespace strata::train {

// Given by whoever started the rank. `started_s` is the monotonic time at which the command began,
// in seconds.
struct Rank {
  World world;
  std::shared_ptr<Store> store;  // null in a world of one
  double started_s = 0;

  bool is_first() const { return world.rank == 0; }
};

// The tables and the error sink that this host shows to plugins.
plugin::HostOffer host_offer();

// Finds, loads and describes what --strategy and --set name; checks that it can do what the run
// needs. [local]
Result<plugin::ResolvedStrategy> resolve_strategy(const config::PlacementConfig& placement,
                                                  const plugin::StrategyNeeds& needs);

// The host of this rank: devices, communication library, deadlines. [local]
Result<std::unique_ptr<device::Host>> make_host(const Rank& rank,
                                                const config::PlacementConfig& placement);

// This library's folder of companions, found beside the executable: ../lib/strata.
std::string library_folder();

// Waits until every rank has come here with `mine`. The first failing rank's status is everybody's.
// [collective]
Status agree(const Rank& rank, const std::string& what, const Status& mine, double timeout_s);

// Checks that this rank was asked for what rank 0 was: lines "name = value", of which those that
// say where something lies may differ. Ranks that another launcher has started may have other flags
// or other files. [collective]
//
// Returns   kInvalidArgument  the lines that differ
Status check_same_request(const Rank& rank, const std::string& request, double timeout_s);

}  // namespace strata::train

#endif  // STRATA_TRAIN_RANK_H_
