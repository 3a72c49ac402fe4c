// strata bench step: the median time of a training step on made-up tokens.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apps/strata/command.h"
#include "apps/strata/played_link.h"
#include "strata/device/process_stats.h"
#include "strata/formats/json.h"
#include "strata/optim/schedule.h"
#include "strata/train/optimization.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "strata/train/training.h"

namespace strata::apps {
namespace {

using formats::Json;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Everything of one measurement on one rank.
class StepBench {
 public:
  StepBench(const config::BenchStepConfig& config, const train::Rank& rank)
      : config_(config),
        rank_(rank),
        precision_(train::make_precision(config.placement.precision, config.precision)) {}

  int operator()() {
    Status status = agree("load", load());
    if (status.ok()) status = agree("prepare", prepare());
    const bool has_started = status.ok();
    if (status.ok()) status = measure();
    if (status.ok()) status = report();
    if (status.ok()) status = training_.session->detach();
    if (!status.ok() && training_.session) training_.session->abort(status.message());
    return exit_code_of(status, has_started);
  }

 private:
  Status agree(const char* what, const Status& mine) const {
    return train::agree(rank_, what, mine, config_.placement.timeout_s);
  }

  Status load() {
    STRATA_ASSIGN_OR_RETURN(model_, zoo::load_model(config_.model));
    const int64_t positions = model_->max_positions();
    if (config_.sequence_length > positions) {
      return invalid_argument(
          fmt::format("bench step: --sequence-length {} is longer than the model's {} positions. "
                      "HINT: --sequence-length {}",
                      config_.sequence_length, positions, positions));
    }
    const auto needs =
        train::training_needs(config_.batch, rank_.world, model_->spec(), precision_);
    STRATA_ASSIGN_OR_RETURN(strategy_, train::resolve_strategy(config_.placement, needs));
    if (config_.link_bandwidth > 0) STRATA_RETURN_IF_ERROR(play_link(config_.link_bandwidth));
    STRATA_RETURN_IF_ERROR(prepare_trace());
    make_batches();
    return {};
  }

  // Other tokens on every rank and in every micro-batch, the same in every step.
  void make_batches() {
    const auto seed = static_cast<uint64_t>(config_.seed + rank_.world.rank);
    at::Generator generator = at::detail::createCPUGenerator(seed);
    for (int64_t micro = 0; micro < config_.batch.gradient_accumulation_steps; ++micro) {
      zoo::Batch batch;
      batch.input_ids =
          at::randint(0, model_->vocab_size(),
                      {config_.batch.per_device_train_batch_size, config_.sequence_length},
                      generator, at::kLong);
      batch.labels = batch.input_ids;
      batches_.push_back(std::move(batch));
    }
  }

  // So that a folder that cannot be written ends the run before it begins.
  Status prepare_trace() const {
    if (config_.trace_dir.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(config_.trace_dir, error);
    if (!error && access(config_.trace_dir.c_str(), W_OK) == 0) return {};
    return io_error(fmt::format("bench step: --trace-dir {}: cannot be written: {}",
                                config_.trace_dir, error ? error.message() : std::strerror(errno)));
  }

  Status prepare() {
    STRATA_ASSIGN_OR_RETURN(resident_before_, device::proportional_set_size());
    STRATA_RETURN_IF_ERROR(train::attach_training(config_.placement, config_.batch,
                                                  config_.optimizer, precision_, rank_, *strategy_,
                                                  *model_, training_));
    const std::string weights = std::filesystem::is_directory(config_.model) ? config_.model : "";
    return train::initialize_weights(*training_.session, *model_, weights,
                                     static_cast<uint64_t>(config_.seed));
  }

  Status measure() {
    train::StepperOptions options;
    options.clipping = train::make_clipping(config_.optimizer);
    options.loss_scale = training_.loss_scale ? &*training_.loss_scale : nullptr;
    options.fixed_loss_scale = precision_.fixed_loss_scale;
    options.micro_batch_tokens =
        config_.batch.per_device_train_batch_size * config_.sequence_length;
    train::Stepper stepper(*training_.session, *training_.host, *model_, *training_.optimizer,
                           options);
    const int64_t steps = config_.skip_steps + config_.max_steps;
    const optim::Schedule schedule = train::make_schedule(config_.optimizer, steps);
    for (int64_t step = 0; step < steps; ++step) {
      if (step + 1 == steps && !config_.trace_dir.empty()) training_.host->enable_trace(true);
      STRATA_RETURN_IF_ERROR(meet());  // so that no rank's head start is measured
      const double begin = device::monotonic_seconds();
      train::seed_step(static_cast<uint64_t>(config_.seed), rank_.world.rank, step + 1);
      STRATA_ASSIGN_OR_RETURN(result_,
                              stepper.step(batches_, optim::learning_rate(schedule, step)));
      const double end = device::monotonic_seconds();
      if (step == 0) first_step_s_ = end - rank_.started_s;
      if (step >= config_.skip_steps) times_.push_back(end - begin);
    }
    if (config_.trace_dir.empty()) return {};
    training_.host->enable_trace(false);
    return training_.host->write_trace(
        fmt::format("{}/trace.rank{}.json", config_.trace_dir, rank_.world.rank));
  }

  // Waits for all ranks.
  Status meet() {
    int64_t nothing = 0;
    return training_.session->all_reduce(std::span<int64_t>(&nothing, 1));
  }

  // Every rank's growth of resident memory since before attach, by rank.
  Result<std::vector<int64_t>> gather_growth() {
    STRATA_RETURN_IF_ERROR(meet());  // shared pages are divided among all who have them
    STRATA_ASSIGN_OR_RETURN(const uint64_t now, device::proportional_set_size());
    std::vector<int64_t> growth(static_cast<size_t>(rank_.world.size), 0);
    growth[static_cast<size_t>(rank_.world.rank)] =
        static_cast<int64_t>(now) - static_cast<int64_t>(resident_before_);
    STRATA_RETURN_IF_ERROR(training_.session->all_reduce(std::span<int64_t>(growth)));
    return growth;
  }

  Status report() {
    STRATA_ASSIGN_OR_RETURN(const std::vector<int64_t> growth, gather_growth());
    STRATA_ASSIGN_OR_RETURN(
        const std::vector<train::RankSummary> ranks,
        train::gather_summaries(*training_.session, rank_.world,
                                train::rank_summary(*training_.host, result_.sent_bytes)));
    if (!rank_.is_first()) return {};
    const Json out = to_json(growth, ranks);
    std::fputs((out.dump() + "\n").c_str(), stdout);
    return config_.output.empty() ? Status() : formats::write_json(config_.output, out);
  }

  // Top-level bytes are rank 0's.
  Json to_json(const std::vector<int64_t>& growth,
               const std::vector<train::RankSummary>& ranks) const {
    Json by_rank = Json::array();
    for (size_t r = 0; r < ranks.size(); ++r) {
      const train::RankSummary& rank = ranks[r];
      by_rank.push_back({{"param_bytes", rank.param_bytes},
                         {"grad_bytes", rank.grad_bytes},
                         {"optimizer_bytes", rank.optimizer_bytes},
                         {"state_bytes", rank.param_bytes + rank.grad_bytes + rank.optimizer_bytes},
                         {"gathered_peak_bytes", rank.gathered_peak_bytes},
                         {"peak_bytes", rank.peak_bytes},
                         {"sent_bytes_per_step", rank.sent_bytes_per_step},
                         {"pss_growth_bytes", growth[r]}});
    }
    const double median_s = median_of(times_);
    Json out = by_rank.at(0);
    out.update({{"strategy", train::strategy_text(*strategy_)},
                {"precision", precision_.name},
                {"world_size", rank_.world.size},
                {"threads", at::get_num_threads()},
                {"steps", config_.max_steps},
                {"median_ms", 1e3 * median_s},
                {"min_ms", 1e3 * *std::min_element(times_.begin(), times_.end())},
                {"tokens_per_s", static_cast<double>(result_.tokens) / median_s},
                {"loss", result_.loss},
                {"link_bandwidth", config_.link_bandwidth},
                {"first_step_s", first_step_s_},
                {"ranks", by_rank}});
    return out;
  }

  const config::BenchStepConfig& config_;
  const train::Rank& rank_;
  const train::Precision precision_;
  std::unique_ptr<zoo::Model> model_;
  std::optional<plugin::ResolvedStrategy> strategy_;
  std::vector<zoo::Batch> batches_;
  train::Training training_;
  uint64_t resident_before_ = 0;
  train::StepResult result_;  // of the last step
  double first_step_s_ = 0;
  std::vector<double> times_;  // of measured steps, in seconds
};

}  // namespace

int run(const config::BenchStepConfig& config) {
  return run_on_ranks(config.placement, [&](const train::Rank& rank) {
    config::BenchStepConfig mine = config;
    mine.placement = with_strategy(config.placement, rank.world);
    return StepBench(mine, rank)();
  });
}

}  // namespace strata::apps
