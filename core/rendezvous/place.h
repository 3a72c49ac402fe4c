// Which rank this process is: from the environment that a launcher has made.
//
//   launcher    recognised by             where the store is
//   strata      STRATA_RANK               rank 0 has its listening socket from the launcher
//   torchrun    RANK, WORLD_SIZE          MASTER_ADDR:MASTER_PORT, in the agent or in rank 0
//   Open MPI    OMPI_COMM_WORLD_RANK      MASTER_ADDR:MASTER_PORT; on one node chosen from the
//   job's name SLURM       SLURM_PROCID              the same; the first node of the step
#ifndef STRATA_RENDEZVOUS_PLACE_H_
#define STRATA_RENDEZVOUS_PLACE_H_

#include <functional>
#include <optional>
#include <string>

#include "strata/base/status.h"
#include "strata/base/world.h"

namespace strata::rendezvous {

// The value of a variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// That of this process.
Environment process_environment();

struct RankPlace {
  World world;
  std::string launcher;      // "strata", "torchrun", "Open MPI", "SLURM"; "" for a world of one
  std::string store_host;    // for example "127.0.0.1"
  int store_port = 0;        // for example 29500
  int store_fd = -1;         // listening socket handed over to rank 0; -1: it makes one
  bool hosts_store = false;  // else rank 0 of another process, or torchrun's agent, does
  std::string run_id;        // keeps the keys of different runs apart
};

// Nullopt: no launcher has started this process, so it may start ranks itself.
//
// An inner launcher wins over an outer one: strata, torchrun, Open MPI, SLURM in this order. A
// batch script or an interactive shell of SLURM is no rank; neither is the only task of a step.
//
// Returns   kInvalidArgument  variables that contradict each other (rank not below size, two
//                             launchers that disagree), are half set or are no numbers; the message
//                             names them with their values
Result<std::optional<RankPlace>> place_from_environment(const Environment& environment);

// The world of that place.
Result<std::optional<World>> world_from_environment(const Environment& environment);

// Does a launcher's world suit what the user asked for?
//
// Returns   kInvalidArgument  `devices` was given and is not the number of ranks on this node, or
//                             `num_nodes` is above 1 and not the number of nodes
Status check_request(const RankPlace& place, std::optional<int> devices, int num_nodes);

}  // namespace strata::rendezvous

#endif  // STRATA_RENDEZVOUS_PLACE_H_
