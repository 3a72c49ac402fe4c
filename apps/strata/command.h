// The subcommands of `strata`, one file each. Every one returns the exit code.
//
// Exit codes: 0 done; 1 failed while running; 2 the request cannot be met, nothing was written; 3
// out of memory.
#ifndef STRATA_APPS_COMMAND_H_
#define STRATA_APPS_COMMAND_H_

#include "strata/base/status.h"
#include "strata/config/config.h"

namespace strata::apps {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitRefused = 2;
inline constexpr int kExitOutOfMemory = 3;

// Logs the message of a failing status on rank 0 (every rank, if the fault may be its own) and maps
// it to an exit code.
int exit_code_of(const Status& status, bool has_started);

int run(const config::TrainConfig& config);
int run(const config::GenerateConfig& config);
int run(const config::ExportConfig& config);
int run(const config::BenchStepConfig& config);
int run(const config::BenchCommConfig& config);
int run(const config::BenchStartupConfig& config);
int run(const config::BenchStrategiesConfig& config);
int run(const config::PluginsListConfig& config);
int run(const config::PluginsInfoConfig& config);
int run(const config::PluginsCheckConfig& config);
int run(const config::DoctorConfig& config);
int run(const config::ShowText& show);

}  // namespace strata::apps

#endif  // STRATA_APPS_COMMAND_H_
