// From a command to its ranks: this process becomes the launcher, a rank, or the only rank.
#ifndef STRATA_APPS_RANKS_H_
#define STRATA_APPS_RANKS_H_

#include <functional>
#include <string>

#include "strata/base/status.h"
#include "strata/base/world.h"
#include "strata/config/config.h"
#include "strata/train/rank.h"

namespace strata::apps {

// Exit codes: 0 done; 1 failed while running; 2 the request cannot be met, nothing was written; 3
// out of memory.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitRefused = 2;
inline constexpr int kExitOutOfMemory = 3;

// Logs the message of a failing status and maps it to an exit code. What the user got wrong is the
// same on every rank: rank 0 alone says it.
int exit_code_of(const Status& status, bool has_started);

// Runs `body` on every rank of the placement and returns the exit code of this process.
//
// A process that a launcher has started (our own, torchrun, Open MPI, SLURM) is one of its ranks.
// Otherwise, with several devices, this process starts the ranks, which run the same command, and
// waits for them; with one device it is the only rank. `body` is not called in a launcher.
int run_on_ranks(const config::PlacementConfig& placement,
                 const std::function<int(const train::Rank& rank)>& body);

// The placement with a strategy where the user named none: "single" on one rank, else "ddp".
config::PlacementConfig with_strategy(config::PlacementConfig placement, const World& world);

}  // namespace strata::apps

#endif  // STRATA_APPS_RANKS_H_
