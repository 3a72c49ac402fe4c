// store_probe RANKS: starts ranks that find each other, meet, and read each other's keys. The exit
// code is 0 if all went well.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "strata/launch/launcher.h"
#include "strata/rendezvous/place.h"
#include "strata/rendezvous/tcp_store.h"

namespace {

using namespace strata;

constexpr std::chrono::milliseconds kTimeout{20'000};

Status run_rank(const rendezvous::RankPlace& place, int ranks) {
  const World& world = place.world;
  if (world.size != ranks) return internal_error("the world has " + std::to_string(world.size));
  STRATA_ASSIGN_OR_RETURN(const auto store, rendezvous::make_store(place, kTimeout));
  STRATA_RETURN_IF_ERROR(
      store->set("rank/" + std::to_string(world.rank), std::to_string(world.rank)));
  STRATA_ASSIGN_OR_RETURN(const int64_t count, store->add("count", 1));
  if (count < 1 || count > world.size) return internal_error("counted " + std::to_string(count));
  for (int rank = 0; rank < world.size; ++rank) {
    STRATA_ASSIGN_OR_RETURN(const std::string value,
                            store->get("rank/" + std::to_string(rank), kTimeout));
    if (value != std::to_string(rank)) return internal_error("read " + value);
  }
  STRATA_RETURN_IF_ERROR(rendezvous::wait_for_all_ranks(*store, world, "middle", kTimeout));
  return rendezvous::wait_for_all_ranks(*store, world, "end", kTimeout);
}

int report(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace

int main(int, char** argv) {
  const int ranks = std::atoi(argv[1]);
  const auto place = rendezvous::place_from_environment(rendezvous::process_environment());
  if (!place.ok()) return report(place.status());
  if (place->has_value()) return report(run_rank(**place, ranks));
  launch::LaunchPlan plan;
  plan.ranks = ranks;
  const auto outcome = launch::launch_ranks(plan);
  if (!outcome.ok()) return report(outcome.status());
  if (!outcome->message.empty()) std::fprintf(stderr, "%s\n", outcome->message.c_str());
  return outcome->exit_code;
}
