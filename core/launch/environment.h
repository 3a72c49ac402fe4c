// The variables by which a launcher tells its ranks where they are.
#ifndef STRATA_LAUNCH_ENVIRONMENT_H_
#define STRATA_LAUNCH_ENVIRONMENT_H_

namespace strata::launch {

inline constexpr const char* kRank = "STRATA_RANK";
inline constexpr const char* kWorldSize = "STRATA_WORLD_SIZE";
inline constexpr const char* kLocalRank = "STRATA_LOCAL_RANK";
inline constexpr const char* kLocalWorldSize = "STRATA_LOCAL_WORLD_SIZE";
// Names this start of the ranks: 16 hex digits, the same on every rank.
inline constexpr const char* kRunId = "STRATA_RUN_ID";
// Rank 0 only: a listening socket for the key-value store, at MASTER_ADDR:MASTER_PORT.
inline constexpr const char* kStoreFd = "STRATA_STORE_FD";
// When the command started, in nanoseconds of CLOCK_BOOTTIME.
inline constexpr const char* kStartNs = "STRATA_START_NS";

inline constexpr const char* kMasterAddr = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";

// Seconds since the user started the command: for a launched rank since its launcher started. To
// 10 ms.
double seconds_since_command_start();

// Cores that this process may use: its affinity mask, and the CPU limit of its control group. At
// least 1.
int usable_cores();

}  // namespace strata::launch

#endif  // STRATA_LAUNCH_ENVIRONMENT_H_
