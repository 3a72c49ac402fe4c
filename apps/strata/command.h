// The subcommands of `strata`, one file each. Every one returns the exit code.
#ifndef STRATA_APPS_COMMAND_H_
#define STRATA_APPS_COMMAND_H_

#include "apps/strata/ranks.h"
#include "strata/config/config.h"

namespace strata::apps {

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
