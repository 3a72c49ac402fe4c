// A model under a strategy, ready for its first step: what every command that trains builds alike.
#ifndef STRATA_TRAIN_TRAINING_H_
#define STRATA_TRAIN_TRAINING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "strata/base/status.h"
#include "strata/config/config.h"
#include "strata/device/host.h"
#include "strata/optim/optimizer.h"
#include "strata/plugin/capabilities.h"
#include "strata/plugin/registry.h"
#include "strata/strategy/session.h"
#include "strata/train/activation_memory.h"
#include "strata/train/metrics.h"
#include "strata/train/precision.h"
#include "strata/train/rank.h"
#include "strata/zoo/model.h"

namespace strata::train {

// In the order in which they are made; they go in the opposite one.
struct Training {
  std::unique_ptr<device::Host> host;
  std::unique_ptr<ActivationMemory> activations;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<strategy::Session> session;
  std::optional<optim::LossScale> loss_scale;  // if it is dynamic
};

// What a training of this model asks of its strategy.
plugin::StrategyNeeds training_needs(const config::BatchConfig& batch, const World& world,
                                     const model::ModelSpec& spec, const Precision& precision);

// Makes all of `out`: the host, the session attached to `model`, the optimizer, the loss scale.
// Weights are not filled. Autograd of the calling thread runs on that thread from now on.
// [collective]
//
// On error  `out` holds what was made, so that its session can be aborted for the other ranks.
Status attach_training(const config::PlacementConfig& placement, const config::BatchConfig& batch,
                       const config::OptimizerConfig& optimizer, const Precision& precision,
                       const Rank& rank, const plugin::ResolvedStrategy& strategy,
                       zoo::Model& model, Training& out);

// This rank's bytes, from the host's counters.
RankSummary rank_summary(const device::Host& host, uint64_t sent_bytes_per_step);

// "fsdp:reshard_after_forward=false".
std::string strategy_text(const plugin::ResolvedStrategy& strategy);

}  // namespace strata::train

#endif  // STRATA_TRAIN_TRAINING_H_
