// strata train
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "apps/strata/command.h"
#include "apps/strata/progress.h"
#include "strata/train/run.h"

namespace strata::apps {
namespace {

// Tables to stdout, the progress line to stderr.
class Printer final : public train::RunObserver {
 public:
  explicit Printer(bool shows_progress) : shows_progress_(shows_progress) {}

  void text(const std::string& text) override {
    progress_.reset();  // leaves its line standing
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void step(const train::StepMetrics& metrics, int64_t first_step, int64_t last_step) override {
    if (!shows_progress_) return;
    if (!progress_) progress_.emplace(STDERR_FILENO, first_step, last_step);
    progress_->update(metrics);
  }

 private:
  bool shows_progress_;
  std::optional<Progress> progress_;
};

}  // namespace

int run(const config::TrainConfig& config) {
  return run_on_ranks(config.placement, [&](const train::Rank& rank) {
    config::TrainConfig mine = config;
    mine.placement = with_strategy(config.placement, rank.world);
    train::RunOutcome outcome;
    {
      Printer printer(!config.no_progress);
      outcome = train::run_training(mine, rank, printer);
    }
    return exit_code_of(outcome.status, outcome.has_started);
  });
}

}  // namespace strata::apps
