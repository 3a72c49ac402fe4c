// Starts the ranks of this node as processes, and ends all of them when one dies.
//
// The launcher is the command itself: it starts the same program with the same arguments once a
// rank, with the rank's place in the environment (see environment.h), and waits. Ranks are started
// by exec, since a fork of a process in which LibTorch has threads hangs.
//
//   strata train --devices 2 ...            launcher: signals, output, the dead
//     |- strata train --devices 2 ...       STRATA_RANK=0, owns the store's listening socket
//     `- strata train --devices 2 ...       STRATA_RANK=1
#ifndef STRATA_LAUNCH_LAUNCHER_H_
#define STRATA_LAUNCH_LAUNCHER_H_

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/status.h"

namespace strata::launch {

struct LaunchPlan {
  int ranks = 1;
  // The program and its arguments; empty: this process's own.
  std::vector<std::string> argv;
  // More variables for every rank; they win over inherited ones.
  std::vector<std::pair<std::string, std::string>> environment;
  // Show the output of ranks above 0, each line with "[rank 1] " in front; else it is dropped.
  bool all_ranks_output = false;
  // The exit code of a rank that has told its user what he did wrong. Ranks often find the same
  // mistake at the same time: if rank 0 ends with this code, its words are the only ones.
  int user_error_code = 2;
  // After a rank ended with that code: how long rank 0 may take to say why, on a busy machine.
  std::chrono::milliseconds refusal_grace{3000};
  // After a rank ended with another exit code: how long others may take to end by themselves.
  std::chrono::milliseconds grace{200};
  // From SIGTERM to SIGKILL. Both together stay below one second.
  std::chrono::milliseconds termination{500};
};

struct LaunchOutcome {
  // 0 if every rank ended with 0; else that of the first that failed, 128 + N for signal N.
  int exit_code = 0;
  // One text for stderr: rank, pid, signal or exit code, and the last lines of its stderr if these
  // were not shown. "" after success, or if rank 0 has said what is wrong.
  std::string message;
};

// Runs the ranks to their end.
//
// Rank 0 has this process's stdin, stdout and stderr, terminal included; the others read nothing.
// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to every rank, once each, since ranks
// are in process groups of their own (signals that this process ignores are left alone); a second
// SIGINT kills them. SIGTSTP stops ranks and launcher, SIGCONT lets them go on. If this
// process dies by whatever means, the kernel kills the ranks. Without OMP_NUM_THREADS, each rank
// gets its share of the usable cores.
//
// REQUIRES: no other thread runs; ranks >= 1. The calling thread's signal mask is as before when
//           this returns, and no child is left.
// Returns   kIo  a socket, pipe or process could not be made; ranks already started were killed
Result<LaunchOutcome> launch_ranks(const LaunchPlan& plan);

}  // namespace strata::launch

#endif  // STRATA_LAUNCH_LAUNCHER_H_
