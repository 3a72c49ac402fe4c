#include "strata/train/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "strata/base/log.h"
#include "strata/base/text.h"
#include "strata/checkpoint/checkpoint.h"
#include "strata/device/process_stats.h"
#include "strata/formats/file.h"
#include "strata/formats/hash.h"
#include "strata/optim/parameter_groups.h"
#include "strata/optim/schedule.h"
#include "strata/train/optimization.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "strata/train/tables.h"
#include "strata/train/training.h"
#include "strata/train/workload.h"
#include "strata/zoo/model.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;

// A run that was killed holds its output folder until its last process is gone.
constexpr std::chrono::seconds kFolderPatience{2};

// Everything of one run on one rank, in the order in which it is made.
class Run {
 public:
  Run(const config::TrainConfig& config, const Rank& rank, RunObserver& observer)
      : config_(config),
        rank_(rank),
        observer_(observer),
        precision_(make_precision(config.placement.precision, config.precision)) {}

  RunOutcome operator()() {
    RunOutcome outcome;
    if (config_.show_param_groups) {
      outcome.status = agree(rank_, "groups", show_groups(), timeout());
      return outcome;
    }
    outcome.status = agree(rank_, "load", load(), config_.placement.timeout_s);
    if (outcome.status.ok()) outcome.status = agree(rank_, "request", check_request(), timeout());
    if (outcome.status.ok()) outcome.status = agree(rank_, "prepare", prepare(), timeout());
    if (outcome.status.ok()) outcome.status = agree(rank_, "output", open_output(), timeout());
    if (outcome.status.ok()) {
      outcome.has_started = true;
      outcome.status = train();
    }
    if (!outcome.status.ok() && training_.session != nullptr)
      training_.session->abort(outcome.status.message());
    outcome.summary = summary_;
    return outcome;
  }

 private:
  double timeout() const { return config_.placement.timeout_s; }
  double elapsed() const { return device::monotonic_seconds() - rank_.started_s; }

  Status show_groups() {
    STRATA_ASSIGN_OR_RETURN(const auto model, zoo::load_model(config_.model));
    STRATA_ASSIGN_OR_RETURN(const optim::ParameterGroups groups,
                            make_groups(config_.optimizer, model->spec()));
    if (rank_.is_first()) observer_.text(optim::groups_table(model->spec(), groups));
    return {};
  }

  // Reads and checks; writes nothing and talks to nobody.
  Status load() {
    STRATA_ASSIGN_OR_RETURN(workload_, load_workload(config_, rank_));
    schedule_ = make_schedule(config_.optimizer, workload_.max_steps);
    STRATA_RETURN_IF_ERROR(optim::check_schedule(schedule_));
    STRATA_RETURN_IF_ERROR(make_groups(config_.optimizer, workload_.model->spec()).status());
    STRATA_ASSIGN_OR_RETURN(
        strategy_,
        resolve_strategy(config_.placement, training_needs(config_.batch, rank_.world,
                                                           workload_.model->spec(), precision_)));
    if (!config_.resume_from_checkpoint.empty()) {
      STRATA_ASSIGN_OR_RETURN(resume_, checkpoint::Reader::open(config_.resume_from_checkpoint));
      STRATA_RETURN_IF_ERROR(zoo::check_same_model(resume_->folder(), config_.model));
      STRATA_RETURN_IF_ERROR(check_same_optimizer(*resume_, config_.optimizer.optim));
    }
    return {};
  }

  Status check_request() {
    formats::Hash64 text;
    text.update(std::as_bytes(workload_.dataset->tokens()));
    return check_same_request(
        rank_,
        fmt::format("{}tokens of the text = {}, hash {}\nstep to go on from = {}\n",
                    config::effective_config(config_), workload_.dataset->token_count(), text.hex(),
                    resume_.has_value() ? resume_->step() : 0),
        timeout());
  }

  // Makes session and optimizer, fills the weights; writes nothing. A rank that fails here does not
  // let the others wait in a collective.
  Status prepare() {
    const Status prepared = prepare_session();
    if (!prepared.ok() && training_.session != nullptr) {
      training_.session->abort(prepared.message());
    }
    return prepared;
  }

  Status prepare_session() {
    STRATA_RETURN_IF_ERROR(attach_training(config_.placement, config_.batch, config_.optimizer,
                                           precision_, rank_, *strategy_, *workload_.model,
                                           training_));
    return fill_weights();
  }

  Status fill_weights() {
    if (resume_.has_value()) {
      STRATA_ASSIGN_OR_RETURN(
          const ResumePoint point,
          restore(*resume_, *training_.session, *training_.optimizer, *workload_.sampler));
      if (training_.loss_scale) {
        STRATA_RETURN_IF_ERROR(restore_loss_scale(*resume_, *training_.loss_scale));
      }
      first_step_ = point.step + 1;
      if (point.step < workload_.max_steps) return {};
      return invalid_argument(
          fmt::format("train: '{}' is at step {} already, and the run ends at step {}. HINT: "
                      "--max-steps above {}",
                      config_.resume_from_checkpoint, point.step, workload_.max_steps, point.step));
    }
    return initialize_weights(*training_.session, *workload_.model, workload_.weights,
                              static_cast<uint64_t>(config_.seed));
  }

  // The first thing that is written. What could be wrong with the request has been found by now.
  Status open_output() {
    if (!rank_.is_first()) return {};
    STRATA_RETURN_IF_ERROR(open_output_folder());
    print_start();
    return {};
  }

  Status open_output_folder() {
    std::error_code error;
    fs::create_directories(config_.output_dir, error);
    if (error) {
      return io_error(
          fmt::format("train: cannot make --output-dir '{}': {}. HINT: a folder that can be "
                      "written",
                      config_.output_dir, error.message()));
    }
    STRATA_RETURN_IF_ERROR(own_output_folder());
    STRATA_RETURN_IF_ERROR(
        formats::write_file_atomically((fs::path(config_.output_dir) / "config.toml").string(),
                                       config::effective_config(config_)));
    STRATA_ASSIGN_OR_RETURN(
        metrics_, MetricsFile::open((fs::path(config_.output_dir) / "metrics.jsonl").string(),
                                    resume_.has_value() ? resume_->step() + 1 : 1));
    return {};
  }

  // From here on no other run writes there, and nothing of an earlier one passes for this run's.
  Status own_output_folder() {
    auto lock = formats::FolderLock::take(config_.output_dir, kFolderPatience);
    if (!lock.ok()) {
      return Status(lock.status().code(),
                    fmt::format("train: --output-dir '{}': {}. HINT: give each run a folder of its "
                                "own",
                                config_.output_dir, lock.status().message()));
    }
    folder_lock_ = std::move(*lock);
    checkpoint::discard_unfinished(config_.output_dir);
    std::error_code error;
    fs::remove(fs::path(config_.output_dir) / "summary.json", error);
    if (!resume_.has_value()) fs::remove(fs::path(config_.output_dir) / "latest", error);
    return {};
  }

  void print_start() {
    StartTable& table = start_table_;
    table.strategy = strategy_text(*strategy_);
    table.plugin_path = strategy_->library->path();
    table.message = strategy_->message;
    table.precision = precision_text(precision_);
    table.world_size = rank_.world.size;
    table.vocab_size = workload_.model->vocab_size();
    table.tokens = workload_.dataset->token_count();
    table.unigram_entropy = workload_.dataset->unigram_entropy();
    table.is_tokenizer_trained = workload_.is_tokenizer_trained;
    table.samples_per_step = workload_.sampler->global_batch();
    table.steps = workload_.max_steps;
    observer_.text(start_table(table, workload_.model->spec(), training_.host->memory_stats()));
  }

  Status train() {
    StepperOptions options;
    options.clipping = make_clipping(config_.optimizer);
    options.skips_nonfinite = config_.optimizer.on_nonfinite == "skip";
    options.loss_scale = training_.loss_scale ? &*training_.loss_scale : nullptr;
    options.fixed_loss_scale = precision_.fixed_loss_scale;
    options.micro_batch_tokens =
        config_.batch.per_device_train_batch_size * config_.data.sequence_length;
    Stepper stepper(*training_.session, *training_.host, *workload_.model, *training_.optimizer,
                    options);
    training_.host->take_wait_seconds();
    for (int64_t step = first_step_; step <= workload_.max_steps; ++step) {
      STRATA_ASSIGN_OR_RETURN(const StepMetrics metrics, one_step(stepper, step));
      if (rank_.is_first()) observer_.step(metrics, first_step_, workload_.max_steps);
      const bool is_last = step == workload_.max_steps;
      const bool is_logged = is_last || step == first_step_ || step % config_.logging_steps == 0 ||
                             skips_in_a_row_ > 0;
      if (rank_.is_first() && is_logged) STRATA_RETURN_IF_ERROR(metrics_->append(metrics));
      STRATA_RETURN_IF_ERROR(check_skips(step));
      if (is_last || (config_.save_steps > 0 && step % config_.save_steps == 0)) {
        STRATA_RETURN_IF_ERROR(save(step));
      }
    }
    return finish();
  }

  Result<StepMetrics> one_step(Stepper& stepper, int64_t step) {
    const double begin = device::monotonic_seconds();
    std::vector<zoo::Batch> batches;
    for (int64_t micro = 0; micro < config_.batch.gradient_accumulation_steps; ++micro) {
      batches.push_back(make_batch(workload_, micro, config_.batch.per_device_train_batch_size));
    }
    const double data_end = device::monotonic_seconds();
    seed_step(static_cast<uint64_t>(config_.seed), rank_.world.rank, step);
    // Of the updates done: a skipped step does not move the schedule.
    const double lr = optim::learning_rate(schedule_, training_.optimizer->step_count());
    auto stepped = stepper.step(batches, lr);
    if (!stepped.ok()) return stepped.status().with_context(fmt::format("step {}", step));
    const StepResult result = *std::move(stepped);
    workload_.sampler->advance();
    const double end = device::monotonic_seconds();
    if (step == first_step_) summary_.first_step_s = elapsed();
    summary_.losses.push_back(result.loss);
    if (result.is_skipped) {
      warn_of_skip(step, result);
      nonfinite_ = result.nonfinite;
      ++skips_in_a_row_;
      ++summary_.skipped_steps;
    } else {
      skips_in_a_row_ = 0;
      summary_.final_loss = result.loss;
    }
    summary_.steps = step;
    summary_.loss_scale = result.loss_scale;
    sent_bytes_per_step_ = result.sent_bytes;

    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = result.loss;
    metrics.grad_norm = result.grad_norm;
    metrics.lr = lr;
    metrics.tokens = result.tokens;
    metrics.skipped_steps = summary_.skipped_steps;
    metrics.loss_scale = result.loss_scale;
    metrics.step_s = end - begin;
    metrics.tokens_per_s = static_cast<double>(result.tokens) / metrics.step_s;
    metrics.data_s = data_end - begin;
    metrics.comm_s = training_.host->take_wait_seconds();
    metrics.sent_bytes = result.sent_bytes;
    const device::MemoryStats memory = training_.host->memory_stats();
    metrics.device_bytes = memory.device.used_total;
    metrics.device_peak_bytes = memory.device.peak_total;
    auto resident = device::resident_peak();
    metrics.host_peak_bytes = resident.ok() ? *resident : 0;
    return metrics;
  }

  void warn_of_skip(int64_t step, const StepResult& result) const {
    if (!rank_.is_first()) return;
    if (training_.loss_scale) {
      log::warning("step {} is skipped: gradients overflow at loss scale {}, the next one is {}",
                   step, result.loss_scale, training_.loss_scale->scale());
    } else {
      log::warning("step {} is skipped: loss {}, not finite in the gradients of {}", step,
                   result.loss, result.nonfinite);
    }
  }

  // A dynamic loss scale ends by itself; but a run must have updated something.
  Status check_skips(int64_t step) const {
    const int64_t most = config_.optimizer.max_nonfinite_skips;
    const bool has_updated = skips_in_a_row_ < step - first_step_ + 1;
    const bool are_few = training_.loss_scale || skips_in_a_row_ < most;
    if (are_few && (has_updated || step < workload_.max_steps)) return {};
    const std::string where =
        nonfinite_.empty() ? "" : fmt::format(" (in the gradients of {})", nonfinite_);
    const std::string hint = training_.loss_scale ? "more steps, or a smaller --init-scale"
                                                  : fmt::format(
                                                        "a smaller --learning-rate, or "
                                                        "--max-nonfinite-skips above {}",
                                                        most);
    return internal_error(fmt::format(
        "train: loss or gradients were not finite in {} steps in a row, up to step {}{}; weights "
        "are as before them. HINT: {}",
        skips_in_a_row_, step, where, hint));
  }

  Status save(int64_t step) {
    SavePoint point;
    point.output_dir = config_.output_dir;
    point.step = step;
    point.strategy = strategy_text(*strategy_);
    point.loss_scale = training_.loss_scale ? &*training_.loss_scale : nullptr;
    point.keep = static_cast<int>(config_.save_total_limit.value_or(0));
    return save_checkpoint(point, rank_, timeout(), *training_.session, *training_.optimizer,
                           workload_);
  }

  Status finish() {
    STRATA_ASSIGN_OR_RETURN(summary_.weight_hash, weight_hash(*training_.session));
    STRATA_ASSIGN_OR_RETURN(summary_.ranks, gather_rank_summaries());
    summary_.strategy = strategy_text(*strategy_);
    summary_.precision = precision_.name;
    const plugin::PluginLibrary& library = *strategy_->library;
    summary_.plugin = {library.path(), library.id(), library.version(), library.abi_built()};
    summary_.wall_s = elapsed();
    if (rank_.is_first()) {
      STRATA_RETURN_IF_ERROR(formats::write_file_atomically(
          (fs::path(config_.output_dir) / "summary.json").string(), to_json(summary_)));
      observer_.text(end_table(summary_, start_table_, config_.output_dir));
    }
    return training_.session->detach();
  }

  Result<std::vector<RankSummary>> gather_rank_summaries() {
    return gather_summaries(*training_.session, rank_.world,
                            rank_summary(*training_.host, sent_bytes_per_step_));
  }

  const config::TrainConfig& config_;
  const Rank& rank_;
  RunObserver& observer_;
  const Precision precision_;
  Workload workload_;
  std::optional<plugin::ResolvedStrategy> strategy_;
  std::optional<checkpoint::Reader> resume_;
  std::optional<formats::FolderLock> folder_lock_;
  Training training_;
  std::optional<MetricsFile> metrics_;
  optim::Schedule schedule_;
  int64_t first_step_ = 1;
  int64_t skips_in_a_row_ = 0;
  std::string nonfinite_;  // parameters of the last of them
  uint64_t sent_bytes_per_step_ = 0;
  StartTable start_table_;
  Summary summary_;
};

}  // namespace

RunOutcome run_training(const config::TrainConfig& config, const Rank& rank,
                        RunObserver& observer) {
  return Run(config, rank, observer)();
}

}  // namespace strata::train
