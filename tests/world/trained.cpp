#include "tests/world/trained.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "strata/strategy/describe.h"
#include "strata/train/optimization.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "tests/world/ranks.h"

namespace strata::tests {
namespace {

// One rank of one training.
class RankRun {
 public:
  RankRun(const Task& task, const Placement& placement, RankOfTest& rank)
      : task_(task), placement_(placement), rank_(rank) {}

  Result<Trained> operator()() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    at::set_num_threads(1);  // models are tiny: threads would only wait for each other
    const Status status = run();
    if (!status.ok() && session_ != nullptr) session_->abort(status.message());
    if (!status.ok()) return status;
    return std::move(out_);
  }

 private:
  Status run() {
    STRATA_RETURN_IF_ERROR(attach());
    config::OptimizerConfig config;
    config.optim = task_.optimizer;
    config.weight_decay = task_.weight_decay;
    config.adam_epsilon = task_.adam_epsilon;
    STRATA_ASSIGN_OR_RETURN(auto optimizer, train::make_optimizer(config, *session_, *rank_.host));
    train::Stepper stepper(*session_, *rank_.host, *model_, *optimizer, {task_.clipping()});
    for (int step = 0; step < task_.steps(); ++step) {
      if (step + 1 == task_.steps()) {
        out_.at_rest = rank_.host->memory_stats().device;
        rank_.host->reset_memory_peaks();
      }
      STRATA_RETURN_IF_ERROR(train_step(stepper, step));
    }
    out_.in_step = rank_.host->memory_stats().device;
    STRATA_RETURN_IF_ERROR(read_weights());
    optimizer.reset();
    STRATA_RETURN_IF_ERROR(session_->detach());
    const uint64_t left = rank_.host->memory_stats().used_total;
    if (left == 0) return {};
    return internal_error(fmt::format("{} bytes are kept behind detach", left));
  }

  Status attach() {
    const plugin::ResolvedStrategy resolved = find_strategy(placement_.strategy);
    STRATA_ASSIGN_OR_RETURN(auto instance, plugin::StrategyInstance::create(
                                               resolved, rank_.world, {STRATA_DEVICE_CPU, 0},
                                               rank_.host->abi(), placement_.is_checked));
    model_ = task_.make_model();
    const model::ModelSpec spec = task_.spec(*model_);
    STRATA_ASSIGN_OR_RETURN(session_,
                            strategy::Session::attach(std::move(instance), *rank_.host, spec));
    model_->bind_units(session_->units());
    if (placement_.recomputes) session_->set_recompute(hooks::UnitGraph::every(1));
    STRATA_RETURN_IF_ERROR(train::initialize_weights(*session_, *model_, "", task_.seed));
    const strategy::ModelDescription sizes(spec, {});
    STRATA_ASSIGN_OR_RETURN(
        out_.estimate, plugin::StrategyInstance::estimate(resolved, rank_.world,
                                                          {STRATA_DEVICE_CPU, 0}, sizes.model()));
    return {};
  }

  Status train_step(train::Stepper& stepper, int step) {
    std::vector<zoo::Batch> batches;
    for (int micro = 0; micro < task_.windows[static_cast<size_t>(step)]; ++micro) {
      batches.push_back(task_.batch({step, rank_.world.rank, micro}));
    }
    if (placement_.infers) {
      STRATA_RETURN_IF_ERROR(session_->infer(
          [&](hooks::UnitRunner& runner) { (void)model_->logits(batches[0], runner); }));
    }
    STRATA_ASSIGN_OR_RETURN(const train::StepResult result,
                            stepper.step(batches, task_.learning_rate));
    out_.losses.push_back(result.loss);
    out_.norms.push_back(result.grad_norm);
    out_.tokens.push_back(result.tokens);
    out_.sent_bytes = result.sent_bytes;
    return {};
  }

  Status read_weights() {
    STRATA_ASSIGN_OR_RETURN(out_.hash, train::weight_hash(*session_));
    return session_->read_units([&](int, std::span<const at::Tensor> parameters) {
      for (const at::Tensor& parameter : parameters) {
        const auto* data = parameter.const_data_ptr<float>();
        out_.weights.emplace_back(data, data + parameter.numel());
      }
      return Status();
    });
  }

  const Task& task_;
  const Placement& placement_;
  RankOfTest& rank_;
  std::unique_ptr<zoo::Model> model_;
  std::unique_ptr<strategy::Session> session_;
  Trained out_;
};

double squared_length(const std::vector<std::vector<float>>& a) {
  double sum = 0;
  for (const auto& values : a) {
    for (const float value : values) sum += static_cast<double>(value) * value;
  }
  return sum;
}

double squared_distance(const std::vector<std::vector<float>>& a,
                        const std::vector<std::vector<float>>& b) {
  double sum = 0;
  for (size_t p = 0; p < a.size(); ++p) {
    for (size_t i = 0; i < a[p].size(); ++i) {
      const double difference = static_cast<double>(a[p][i]) - b[p][i];
      sum += difference * difference;
    }
  }
  return sum;
}

bool are_comparable(const Trained& a, const Trained& b, const std::string& what) {
  EXPECT_EQ(a.error, "") << what;
  EXPECT_EQ(b.error, "") << what;
  bool is_same_shape = a.losses.size() == b.losses.size() && a.weights.size() == b.weights.size();
  for (size_t p = 0; is_same_shape && p < a.weights.size(); ++p) {
    is_same_shape = a.weights[p].size() == b.weights[p].size();
  }
  EXPECT_TRUE(is_same_shape) << what << ": another number of steps, parameters or elements";
  return is_same_shape && a.error.empty() && b.error.empty();
}

}  // namespace

model::ModelSpec Task::spec(const zoo::Model& model) const {
  model::ModelSpec spec = model.spec();
  for (size_t u = 0; dtypes != nullptr && u < spec.units.size(); ++u) {
    spec.units[u].dtypes = dtypes(static_cast<int>(u));
  }
  return spec;
}

Trained train_on_ranks(const Task& task, const Placement& placement) {
  std::mutex mutex;
  std::vector<Trained> all(static_cast<size_t>(placement.world));
  std::string error;
  run_ranks(placement.world, [&](RankOfTest& rank) {
    Result<Trained> mine = RankRun(task, placement, rank)();
    const std::lock_guard lock(mutex);
    if (mine.ok()) {
      all[static_cast<size_t>(rank.world.rank)] = std::move(mine).value();
    } else {
      error += fmt::format("rank {}: {}\n", rank.world.rank, mine.status().message());
    }
  });
  for (size_t rank = 1; rank < all.size() && error.empty(); ++rank) {
    const bool agrees = all[rank].losses == all[0].losses && all[rank].norms == all[0].norms &&
                        all[rank].tokens == all[0].tokens && all[rank].hash == all[0].hash;
    if (!agrees) error = fmt::format("rank {} has other numbers than rank 0", rank);
  }
  all[0].error = error;
  return std::move(all[0]);
}

void expect_same_bits(const Trained& found, const Trained& expected, const std::string& what) {
  if (!are_comparable(found, expected, what)) return;
  EXPECT_EQ(found.losses, expected.losses) << what;
  EXPECT_EQ(found.norms, expected.norms) << what;
  EXPECT_EQ(found.tokens, expected.tokens) << what;
  EXPECT_EQ(found.hash, expected.hash)
      << what << ": weights are apart by "
      << std::sqrt(squared_distance(found.weights, expected.weights));
}

void expect_close(const Trained& found, const Trained& expected, double relative,
                  const std::string& what) {
  if (!are_comparable(found, expected, what)) return;
  EXPECT_EQ(found.tokens, expected.tokens) << what;
  for (size_t step = 0; step < found.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step],
                relative * std::abs(expected.losses[step]))
        << what << ", loss of step " << step;
    EXPECT_NEAR(found.norms[step], expected.norms[step], relative * expected.norms[step])
        << what << ", norm of step " << step;
  }
  const double length = std::sqrt(squared_length(expected.weights));
  EXPECT_LE(std::sqrt(squared_distance(found.weights, expected.weights)), relative * length)
      << what << ", weights";
}

}  // namespace strata::tests
