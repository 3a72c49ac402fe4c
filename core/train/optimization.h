// From what a user asks of optimizer, groups, schedule and clipping to the objects that do it.
#ifndef STRATA_TRAIN_OPTIMIZATION_H_
#define STRATA_TRAIN_OPTIMIZATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/config/config.h"
#include "strata/device/host.h"
#include "strata/optim/clipping.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/parameter_groups.h"
#include "strata/optim/schedule.h"
#include "strata/strategy/session.h"

namespace strata::train {

// Sums over the strategy's ranks, in as many messages as its contract wants. `session` outlives it.
class SessionReducer final : public optim::Reducer {
 public:
  explicit SessionReducer(strategy::Session& session) : session_(session) {}
  Status sum(std::span<int64_t> values) override;
  Status max(std::span<double> values) override;

 private:
  strategy::Session& session_;
};

// Returns  kInvalidArgument  a rule of --param-group that is none or matches nothing
Result<optim::ParameterGroups> make_groups(const config::OptimizerConfig& config,
                                           const model::ModelSpec& spec);

// Refuses a strategy whose partitions this optimizer cannot update; `strategy` is its name.
// [collective]
//
// Returns  kUnsupported  as optim::check_partitions()
Status check_partitions(const config::OptimizerConfig& config, const std::string& strategy,
                        strategy::Session& session);

// The optimizer over the session's partitions, its states in the host's memory.
Result<std::unique_ptr<optim::Optimizer>> make_optimizer(const config::OptimizerConfig& config,
                                                         const strategy::Session& session,
                                                         device::Host& host);

// With what depends on the number of steps: --warmup-ratio, --lr-decay-steps.
optim::Schedule make_schedule(const config::OptimizerConfig& config, int64_t total_steps);

// REQUIRES: a configuration that was parsed.
optim::Clipping make_clipping(const config::OptimizerConfig& config);

}  // namespace strata::train

#endif  // STRATA_TRAIN_OPTIMIZATION_H_
