#include "apps/strata/ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "strata/base/log.h"
#include "strata/device/process_stats.h"
#include "strata/launch/environment.h"
#include "strata/launch/launcher.h"
#include "strata/rendezvous/place.h"
#include "strata/rendezvous/tcp_store.h"

namespace strata::apps {
namespace {

// How long a rank that has refused waits for others to have read why.
constexpr std::chrono::milliseconds kRefusedDeadline{2'000};
// The same where others may hang: in a collective that the failed rank does not come to.
constexpr std::chrono::milliseconds kFailedDeadline{300};

// What a CPU communicator can have.
constexpr int kMostRanksOfNode = 256;

// Of this process; 0 until it has met the others. What is refused before that, each rank says
// itself.
int own_rank = 0;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

double command_started_s() {
  return device::monotonic_seconds() - launch::seconds_since_command_start();
}

int run_alone(const std::function<int(const train::Rank&)>& body) {
  train::Rank rank;
  rank.started_s = command_started_s();
  return body(rank);
}

int run_as_rank(const rendezvous::RankPlace& place, const config::PlacementConfig& placement,
                const std::function<int(const train::Rank&)>& body) {
  // strata's own launcher puts the rank in front of every line of its ranks.
  if (place.world.rank > 0 && place.launcher != "strata") log::set_rank(place.world.rank);
  const std::optional<int> devices =
      placement.devices_given ? std::optional<int>(placement.devices) : std::nullopt;
  const Status suits = rendezvous::check_request(place, devices, placement.num_nodes);
  if (!suits.ok()) return exit_code_of(suits, false);
  const auto timeout = milliseconds_of(placement.timeout_s);
  auto store = rendezvous::make_store(place, timeout);
  if (!store.ok()) return exit_code_of(store.status(), false);
  own_rank = place.world.rank;

  train::Rank rank;
  rank.world = place.world;
  rank.started_s = command_started_s();
  rank.store = std::move(store).value();
  const int code = body(rank);
  // The process that serves the store ends last, so that the others can read why.
  const auto patience = code == kExitDone      ? timeout
                        : code == kExitRefused ? kRefusedDeadline
                                               : kFailedDeadline;
  const Status together = rendezvous::wait_for_all_ranks(*rank.store, rank.world, "end", patience);
  return code == kExitDone ? exit_code_of(together, true) : code;
}

int launch_and_wait(const config::PlacementConfig& placement) {
  if (placement.num_nodes > 1) {
    return exit_code_of(
        invalid_argument(fmt::format(
            "--num-nodes {}: this command starts ranks on one node. HINT: start it by torchrun, "
            "srun or mpirun on every node",
            placement.num_nodes)),
        false);
  }
  if (placement.devices > kMostRanksOfNode) {
    return exit_code_of(
        invalid_argument(fmt::format("--devices {}: one node has at most {} ranks here. HINT: this "
                                     "machine has {} cores",
                                     placement.devices, kMostRanksOfNode, launch::usable_cores())),
        false);
  }
  launch::LaunchPlan plan;
  plan.ranks = placement.devices;
  plan.all_ranks_output = placement.all_ranks_output;
  plan.user_error_code = kExitRefused;
  std::fflush(nullptr);
  const auto outcome = launch::launch_ranks(plan);
  if (!outcome.ok()) return exit_code_of(outcome.status(), true);
  if (!outcome->message.empty()) log::error("{}", outcome->message);
  return outcome->exit_code;
}

}  // namespace

int exit_code_of(const Status& status, bool has_started) {
  if (status.ok()) return kExitDone;
  int code = kExitRefused;
  switch (status.code()) {
    case Code::kOutOfMemory: code = kExitOutOfMemory; break;
    case Code::kTimeout:
    case Code::kAborted:
    case Code::kPeerLost:
    case Code::kInternal: code = kExitFailed; break;
    default: code = has_started ? kExitFailed : kExitRefused;
  }
  if (code != kExitRefused || own_rank == 0) log::error("{}", status.message());
  return code;
}

int run_on_ranks(const config::PlacementConfig& placement,
                 const std::function<int(const train::Rank& rank)>& body) {
  const auto place = rendezvous::place_from_environment(rendezvous::process_environment());
  if (!place.ok()) return exit_code_of(place.status(), false);
  if (place->has_value()) return run_as_rank(**place, placement, body);
  if (placement.world_size() > 1) return launch_and_wait(placement);
  return run_alone(body);
}

config::PlacementConfig with_strategy(config::PlacementConfig placement, const World& world) {
  if (placement.strategy == config::kAutoStrategy)
    placement.strategy = world.size == 1 ? "single" : "ddp";
  return placement;
}

}  // namespace strata::apps
