// strata bench step: the median time of a training step on made-up tokens, under one strategy.
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "apps/strata/command.h"
#include "apps/strata/ranks.h"
#include "strata/device/process_stats.h"
#include "strata/formats/json.h"
#include "strata/strategy/session.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"

namespace strata::apps {
namespace {

using formats::Json;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// The same micro-batches in every step: other tokens on every rank.
std::vector<zoo::Batch> make_batches(const config::BenchStepConfig& config, const World& world,
                                     int64_t vocab) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(config.seed) +
                                                  static_cast<uint64_t>(world.rank));
  std::vector<zoo::Batch> batches;
  for (int64_t i = 0; i < config.batch.gradient_accumulation_steps; ++i) {
    zoo::Batch batch;
    batch.input_ids =
        at::randint(0, vocab, {config.batch.per_device_train_batch_size, config.sequence_length},
                    generator, at::kLong);
    batch.labels = batch.input_ids;
    batches.push_back(batch);
  }
  return batches;
}

Json report(const std::vector<double>& seconds, const train::StepResult& last,
            const device::MemoryStats& memory, uint64_t pss_before) {
  auto pss = device::proportional_set_size();
  const double median_s = median_of(seconds);
  return {{"median_ms", 1e3 * median_s},
          {"min_ms", 1e3 * *std::min_element(seconds.begin(), seconds.end())},
          {"tokens_per_s", static_cast<double>(last.tokens) / median_s},
          {"loss", last.loss},
          {"sent_bytes_per_step", last.sent_bytes},
          {"param_bytes", memory.used_of(STRATA_TAG_PARAMETERS)},
          {"grad_bytes", memory.used_of(STRATA_TAG_GRADIENTS)},
          {"optimizer_bytes", memory.used_of(STRATA_TAG_OPTIMIZER)},
          {"pss_growth_bytes", pss.ok() && *pss > pss_before ? *pss - pss_before : 0}};
}

Result<Json> measure(const config::BenchStepConfig& config, const train::Rank& rank) {
  const config::PlacementConfig placement = with_strategy(config.placement, rank.world);
  STRATA_ASSIGN_OR_RETURN(auto model, zoo::load_model(config.model));
  plugin::StrategyNeeds needs;
  needs.world_size = static_cast<uint32_t>(rank.world.size);
  needs.accumulates = config.batch.gradient_accumulation_steps > 1;
  STRATA_ASSIGN_OR_RETURN(const auto strategy, train::resolve_strategy(placement, needs));
  STRATA_ASSIGN_OR_RETURN(auto host, train::make_host(rank, placement));
  auto pss_before = device::proportional_set_size();
  STRATA_ASSIGN_OR_RETURN(
      auto instance, plugin::StrategyInstance::create(strategy, rank.world, {STRATA_DEVICE_CPU, 0},
                                                      host->abi(), placement.check_plugin));
  STRATA_ASSIGN_OR_RETURN(auto session,
                          strategy::Session::attach(std::move(instance), *host, model->spec()));
  model->bind_units(session->units());
  if (config.batch.activation_checkpointing) session->set_recompute(hooks::UnitGraph::every(1));
  STRATA_RETURN_IF_ERROR(
      train::initialize_weights(*session, *model, "", static_cast<uint64_t>(config.seed)));
  STRATA_ASSIGN_OR_RETURN(auto optimizer, train::make_optimizer(config.optimizer, *session, *host));
  train::Stepper stepper(*session, *host, *model, *optimizer, config.optimizer.max_grad_norm);
  const auto batches = make_batches(config, rank.world, model->vocab_size());
  std::vector<double> seconds;
  train::StepResult last;
  for (int64_t step = 0; step < config.skip_steps + config.max_steps; ++step) {
    const double begin = device::monotonic_seconds();
    STRATA_ASSIGN_OR_RETURN(last, stepper.step(batches, config.optimizer.learning_rate));
    if (step >= config.skip_steps) seconds.push_back(device::monotonic_seconds() - begin);
  }
  Json json = report(seconds, last, host->memory_stats(), pss_before.ok() ? *pss_before : 0);
  json["strategy"] = placement.strategy;
  json["world_size"] = rank.world.size;
  STRATA_RETURN_IF_ERROR(session->detach());
  return json;
}

}  // namespace

int run(const config::BenchStepConfig& config) {
  return run_on_ranks(config.placement, [&](const train::Rank& rank) {
    const auto json = measure(config, rank);
    if (!json.ok()) return exit_code_of(json.status(), false);
    if (!rank.is_first()) return kExitDone;
    std::fputs((json->dump() + "\n").c_str(), stdout);
    if (config.output.empty()) return kExitDone;
    return exit_code_of(formats::write_json(config.output, *json), true);
  });
}

}  // namespace strata::apps
