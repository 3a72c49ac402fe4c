// strata plugins check FILE: runs each strategy of a plugin on a tiny model in the checked mode and
// holds what it gives against one process.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <c10/core/AutogradState.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/strata/command.h"
#include "strata/plugin/capabilities.h"
#include "strata/strategy/session.h"
#include "strata/train/optimization.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "strata/zoo/gpt2.h"

namespace strata::apps {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kRows = 2;
constexpr double kTolerance = 2e-5;  // relative; sums in another order differ by less

zoo::Gpt2Config tiny_model(bool is_tied) {
  zoo::Gpt2Config config;
  config.vocab_size = 97;
  config.n_positions = 16;
  config.n_embd = 32;
  config.n_inner = 128;
  config.n_layer = 3;
  config.n_head = 2;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  config.tie_word_embeddings = is_tied;
  return config;
}

zoo::Batch batch_of(int step, int part) {
  const auto seed = static_cast<uint64_t>(100 * step + part + 1);
  zoo::Batch batch;
  batch.input_ids =
      at::randint(0, 97, {kRows, 16}, at::detail::createCPUGenerator(seed), at::kLong);
  batch.labels = batch.input_ids;
  return batch;
}

// One training: who trains, and which parts of each step's batch are this rank's.
struct Trial {
  plugin::ResolvedStrategy strategy;
  World world;
  std::shared_ptr<Store> store;
  double timeout_s = 60;
  bool is_tied = true;
  bool infers = true;
  std::vector<int> parts;
};

struct Numbers {
  std::vector<double> losses;
  std::vector<double> norms;
};

Status check_units(strategy::Session& session, const zoo::Model& model) {
  STRATA_RETURN_IF_ERROR(session.write_units([&](int unit, std::span<const at::Tensor> parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      model.initialize(unit, static_cast<int>(i), parameters[i], 7);
    }
    return Status();
  }));
  return session.read_units([&](int unit, std::span<const at::Tensor> parameters) -> Status {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor expected = parameters[i].clone();
      model.initialize(unit, static_cast<int>(i), expected, 7);
      if (at::equal(expected, parameters[i])) continue;
      const model::UnitSpec& spec = session.spec().units[static_cast<size_t>(unit)];
      return internal_error(fmt::format("unit '{}': '{}' is not read as it was written", spec.name,
                                        spec.parameters[i].name));
    }
    return {};
  });
}

Result<Numbers> run_trial(const Trial& trial) {
  device::HostConfig config;
  config.world = trial.world;
  config.store = trial.store;
  config.store_prefix = "check/" + trial.strategy.name;
  config.timeout = std::chrono::milliseconds(static_cast<int64_t>(trial.timeout_s * 1000));
  if (trial.world.size > 1) config.ccl_library = train::library_folder() + "/libstrata_ccl_cpu.so";
  STRATA_ASSIGN_OR_RETURN(const auto host, device::Host::create(config));
  STRATA_ASSIGN_OR_RETURN(
      plugin::StrategyInstance instance,
      plugin::StrategyInstance::create(trial.strategy, trial.world, {STRATA_DEVICE_CPU, 0},
                                       host->abi(), true));
  zoo::Gpt2 model(tiny_model(trial.is_tied));
  STRATA_ASSIGN_OR_RETURN(const auto session,
                          strategy::Session::attach(std::move(instance), *host, model.spec()));
  model.bind_units(session->units());
  STRATA_RETURN_IF_ERROR(check_units(*session, model));
  STRATA_ASSIGN_OR_RETURN(const auto optimizer, train::make_optimizer({}, *session, *host));
  train::Stepper stepper(*session, *host, model, *optimizer, {{.max_norm = 1}});
  Numbers numbers;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<zoo::Batch> batches;
    for (const int part : trial.parts) batches.push_back(batch_of(step, part));
    STRATA_ASSIGN_OR_RETURN(const train::StepResult result, stepper.step(batches, 1e-3));
    numbers.losses.push_back(result.loss);
    numbers.norms.push_back(result.grad_norm);
  }
  if (trial.infers) {
    STRATA_RETURN_IF_ERROR(session->infer(
        [&](hooks::UnitRunner& runner) { model.logits(batch_of(0, trial.parts[0]), runner); }));
  }
  STRATA_RETURN_IF_ERROR(session->detach());
  return numbers;
}

Status compare(const Numbers& found, const Numbers& expected, bool replicas_may_differ) {
  // Between synchronisations such a strategy goes its own way; the first loss is the same.
  const int steps = replicas_may_differ ? 1 : kSteps;
  for (int step = 0; step < steps; ++step) {
    const auto at = static_cast<size_t>(step);
    const auto differs = [&](const std::vector<double>& a, const std::vector<double>& b) {
      return !(std::abs(a[at] - b[at]) <= kTolerance * std::abs(b[at]));
    };
    if (differs(found.losses, expected.losses)) {
      return internal_error(fmt::format("loss of step {}: {}, of one process {}", step + 1,
                                        found.losses[at], expected.losses[at]));
    }
    if (!replicas_may_differ && differs(found.norms, expected.norms)) {
      return internal_error(fmt::format("gradient norm of step {}: {}, of one process {}", step + 1,
                                        found.norms[at], expected.norms[at]));
    }
  }
  return {};
}

class PluginCheck {
 public:
  PluginCheck(const config::PluginsCheckConfig& config, const train::Rank& rank)
      : config_(config), rank_(rank) {}

  int operator()() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    const Status loaded = train::agree(rank_, "load", load(), config_.timeout_s);
    if (!loaded.ok()) return exit_code_of(loaded, false);
    for (const plugin::ResolvedStrategy& strategy : strategies_) {
      const auto ranks = check(strategy);
      const Status all = train::agree(rank_, "check " + strategy.name, ranks.status(),  // NOLINT
                                      config_.timeout_s);
      if (!all.ok()) {
        return exit_code_of(all.with_context("plugins check: " + strategy.name), true);
      }
      if (rank_.is_first()) {
        std::fputs(fmt::format("{}: keeps the contract on {} rank{}, trains like one process\n",
                               strategy.name, *ranks, *ranks == 1 ? "" : "s")
                       .c_str(),
                   stdout);
      }
    }
    return kExitDone;
  }

 private:
  Status load() {
    STRATA_ASSIGN_OR_RETURN(const plugin::StrategyRequest request,
                            plugin::parse_strategy_request(config_.file));
    plugin::PluginRegistry registry(train::host_offer(), plugin::search_places({}));
    STRATA_ASSIGN_OR_RETURN(single_, registry.find({"single", "", {}}));
    if (request.file.empty() || !request.name.empty()) {
      STRATA_ASSIGN_OR_RETURN(strategies_.emplace_back(), registry.find(request));
      return {};
    }
    STRATA_ASSIGN_OR_RETURN(
        const auto library,
        plugin::PluginLibrary::load(std::filesystem::absolute(request.file), train::host_offer()));
    for (const std::string& name : library->strategies()) {
      strategies_.push_back({library, name, request.options, ""});
    }
    return {};
  }

  // On how many ranks it ran.
  Result<int> check(const plugin::ResolvedStrategy& strategy) {
    STRATA_ASSIGN_OR_RETURN(const strata_capabilities_t can,
                            strategy.library->describe(strategy.name));
    const int size = rank_.world.size;
    const int ranks = can.max_world == 0 ? size : std::min(size, static_cast<int>(can.max_world));
    if (static_cast<int>(can.min_world) > size) {
      return invalid_argument(
          fmt::format("needs at least {} ranks. HINT: --devices {}", can.min_world, can.min_world));
    }
    if (rank_.world.rank >= ranks) return ranks;
    const bool accumulates = (can.flags & (STRATA_CAN_NO_SYNC | STRATA_CAN_SYNC_EACH_BATCH)) != 0;
    const int micro_batches = accumulates ? 2 : 1;
    Trial trial;
    trial.strategy = strategy;
    trial.world = {rank_.world.rank, ranks, rank_.world.rank, ranks, 0, 1};
    trial.store = ranks > 1 ? rank_.store : nullptr;
    trial.timeout_s = config_.timeout_s;
    trial.is_tied = (can.flags & STRATA_CAN_TIED) != 0;
    trial.infers = (can.flags & STRATA_CAN_INFERENCE) != 0;
    for (int i = 0; i < micro_batches; ++i) trial.parts.push_back(i * ranks + rank_.world.rank);
    STRATA_ASSIGN_OR_RETURN(const Numbers found, run_trial(trial));

    Trial alone = trial;
    alone.strategy = single_;
    alone.world = {};
    alone.store = nullptr;
    alone.parts.clear();
    for (int i = 0; i < micro_batches * ranks; ++i) alone.parts.push_back(i);
    STRATA_ASSIGN_OR_RETURN(const Numbers expected, run_trial(alone));
    STRATA_RETURN_IF_ERROR(compare(found, expected, (can.flags & STRATA_REPLICAS_MAY_DIFFER) != 0));
    return ranks;
  }

  const config::PluginsCheckConfig& config_;
  const train::Rank& rank_;
  plugin::ResolvedStrategy single_;
  std::vector<plugin::ResolvedStrategy> strategies_;
};

}  // namespace

int run(const config::PluginsCheckConfig& config) {
  config::PlacementConfig placement;
  placement.devices = config.devices;
  placement.timeout_s = config.timeout_s;
  return run_on_ranks(placement,
                      [&](const train::Rank& rank) { return PluginCheck(config, rank)(); });
}

}  // namespace strata::apps
