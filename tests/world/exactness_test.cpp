// What accumulation, clipping, sharding and timing must not change: the weight of a token, the
// norm, the peak of gathered memory, the result of a repetition.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "strata/optim/registry.h"
#include "strata/zoo/head_loss.h"
#include "tests/world/tasks.h"
#include "tests/world/trained.h"

namespace strata::tests {
namespace {

// ---- windows of unequal sequences ----

// A window of GPT-2 sequences of 2 to 8 tokens, dealt out to micro-batches and ranks, or to one.
class UnequalWindow {
 public:
  UnequalWindow(int step, int world, int micro_batches)
      : step_(step), world_(world), micro_batches_(micro_batches) {}

  zoo::Batch part(int rank, int micro) const {
    std::vector<int> mine;
    for (int i = 0; i < count(); ++i) {
      if (i % (world_ * micro_batches_) == micro * world_ + rank) mine.push_back(i);
    }
    return batch_of(mine);
  }
  zoo::Batch whole() const {
    std::vector<int> all;
    for (int i = 0; i < count(); ++i) all.push_back(i);
    return batch_of(all);
  }

 private:
  // The last window holds less.
  int count() const { return step_ == 2 ? 13 : 29; }
  int64_t length(int i) const { return 2 + (i * 5 + step_) % 7; }

  // Padded to the longest of them on the right.
  zoo::Batch batch_of(const std::vector<int>& sequences) const {
    int64_t longest = 0;
    for (const int i : sequences) longest = std::max(longest, length(i));
    const auto rows = static_cast<int64_t>(sequences.size());
    zoo::Batch batch;
    batch.input_ids = at::zeros({rows, longest}, at::kLong);
    batch.labels = at::full({rows, longest}, zoo::kNoLabel, at::kLong);
    batch.attention_mask = at::zeros({rows, longest}, at::kLong);
    for (int64_t row = 0; row < rows; ++row) {
      const int i = sequences[static_cast<size_t>(row)];
      const at::Tensor ids =
          random_ids(static_cast<uint64_t>(step_ * 1000 + i), 1, length(i), 67)[0];
      batch.input_ids[row].narrow(0, 0, length(i)).copy_(ids);
      batch.attention_mask[row].narrow(0, 0, length(i)).fill_(1);
      if (i % 6 != 2) batch.labels[row].narrow(0, 0, length(i)).copy_(ids);
    }
    return batch;
  }

  int step_;
  int world_;
  int micro_batches_;
};

Task unequal_task(int world, std::vector<int> windows, bool is_whole) {
  Task task = gpt2_task(true, {1, 1});
  if (is_whole) windows.assign(windows.size(), 1);
  task.windows = windows;
  task.max_grad_norm = 0.5;
  task.batch = [=](const BatchPlace& place) {
    const UnequalWindow window(place.step, world, windows[static_cast<size_t>(place.step)]);
    return is_whole ? window.whole() : window.part(place.rank, place.micro);
  };
  return task;
}

// What averaging the means of micro-batches would give.
double mean_of_means(const Task& task, int world) {
  double sum = 0;
  int parts = 0;
  for (int rank = 0; rank < world; ++rank) {
    for (int micro = 0; micro < task.windows[0]; ++micro) {
      const zoo::Batch batch = task.batch({0, rank, micro});
      if (!batch.labels.ne(zoo::kNoLabel).any().item<bool>()) continue;
      Task one = task;
      one.windows = {1};
      one.batch = [&](const BatchPlace&) { return batch; };
      sum += train_in_one_process(one, 1).losses[0];
      ++parts;
    }
  }
  return sum / parts;
}

TEST(Windows, OfUnequalSequencesAreTheOneBigBatch) {
  const std::vector<int> windows = {3, 3, 2};  // the last one is shorter
  const Trained whole = train_in_one_process(unequal_task(1, windows, true), 1);
  for (const int world : {1, 2, 4}) {
    const Task task = unequal_task(world, windows, false);
    EXPECT_GT(std::abs(mean_of_means(task, world) - whole.losses[0]), 1e-4 * whole.losses[0]);
    std::vector<std::string> strategies = strategies_of(world);
    for (const char* each : {"zero2:sync_each_batch=true", "zero3:sync_each_batch=true",
                             "fsdp:sync_each_batch=true"}) {
      strategies.emplace_back(each);
    }
    if (world == 4) strategies.emplace_back("hsdp:shard_group_size=2,sync_each_batch=true");
    for (const std::string& strategy : strategies) {
      const Trained trained = train_on_ranks(task, {strategy, world});
      expect_close(trained, whole, 1e-6, fmt::format("{} on {} ranks", strategy, world));
    }
  }
}

// ---- norms ----

// Tied, frozen and trained parameters of every shape; sums of integers only.
OddShape linear_shape() {
  OddShape shape = every_odd_shape();
  shape.is_linear = true;
  return shape;
}

// The gradients of a linear model over the global batch of a step, by hand: each entry adds
// (id * (column + 1)) % 7 - 3 for each token to element i of a parameter, where column =
// i % (width - 1).
double norm_by_hand(const OddShape& shape, const Task& whole, int step, double type = 2) {
  const at::Tensor ids = whole.batch({step, 0, 0}).input_ids.reshape({-1});
  const auto* tokens = ids.const_data_ptr<int64_t>();
  int64_t sum = 0;
  int64_t largest = 0;
  for (const int unit : std::set<int>(shape.order.begin(), shape.order.end())) {
    const auto entries = std::count(shape.order.begin(), shape.order.end(), unit);
    for (const OddParameter& parameter : shape.units[static_cast<size_t>(unit)]) {
      if (!parameter.is_trainable || parameter.use == Use::kNever) continue;
      int64_t numel = 1;
      for (const int64_t size : parameter.shape) numel *= size;
      for (int64_t i = 0; i < numel; ++i) {
        int64_t gradient = 0;
        for (int64_t t = 0; t < ids.numel(); ++t) {
          if (parameter.use == Use::kSometimes && tokens[t] % 8 != 0) continue;
          gradient += tokens[t] * (i % (shape.width - 1) + 1) % 7 - 3;
        }
        const int64_t magnitude = std::abs(entries * gradient);
        largest = std::max(largest, magnitude);
        sum += type == 1   ? magnitude
               : type == 2 ? magnitude * magnitude
                           : magnitude * magnitude * magnitude;
      }
    }
  }
  const auto total = static_cast<double>(sum);
  const double norm = type == optim::kInfinityNorm ? static_cast<double>(largest)
                      : type == 1                  ? total
                      : type == 2                  ? std::sqrt(total)
                                                   : std::cbrt(total);
  return norm / static_cast<double>(ids.numel());
}

// Integers add up to the same sum in any order, so nothing may differ: neither norms nor, behind
// their clipping, weights.
TEST(Norms, AreOneNumberForEveryStrategyWorldAndAccumulation) {
  const OddShape shape = linear_shape();
  const double max_norm = 0.75;
  Task whole_task = odd_task(shape, {1, 1});
  whole_task.max_grad_norm = max_norm;
  const Trained whole = train_in_one_process(whole_task, 1);
  std::vector<double> norms;
  for (int step = 0; step < whole_task.steps(); ++step) {
    norms.push_back(norm_by_hand(shape, whole_task, step));
    EXPECT_GT(norms.back(), 2 * max_norm) << "nothing is clipped";
  }
  EXPECT_EQ(whole.norms, norms);
  for (const int world : {1, 2, 3, 4, 6}) {
    for (const int accumulation : {1, 3}) {
      Task task = odd_task(shape, {world, accumulation});
      task.max_grad_norm = max_norm;
      std::vector<std::string> strategies = strategies_of(world);
      if (world % 2 == 0) {
        strategies.emplace_back("hsdp:shard_group_size=2,deterministic=false");
        strategies.emplace_back("hsdp:shard_group_size=2,sync_each_batch=true");
      }
      for (const std::string& strategy : strategies) {
        SCOPED_TRACE(fmt::format("{}, world {}, accumulation {}", strategy, world, accumulation));
        const Trained trained = train_on_ranks(task, {strategy, world});
        EXPECT_EQ(trained.error, "");
        EXPECT_EQ(trained.norms, norms);
        EXPECT_EQ(trained.hash, whole.hash);
      }
    }
  }
}

TEST(Norms, OfEveryTypeAreOneNumberForEveryStrategyWorldAndAccumulation) {
  const OddShape shape = linear_shape();
  for (const double type : {1.0, 3.0, optim::kInfinityNorm}) {
    Task whole_task = odd_task(shape, {1, 1});
    whole_task.norm_type = type;
    whole_task.max_grad_norm = 0.01;
    const Trained whole = train_in_one_process(whole_task, 1);
    for (int step = 0; step < whole_task.steps(); ++step) {
      const double by_hand = norm_by_hand(shape, whole_task, step, type);
      EXPECT_GT(by_hand, 2 * whole_task.max_grad_norm) << "nothing is clipped";
      EXPECT_NEAR(whole.norms[static_cast<size_t>(step)] / by_hand, 1, 1e-14) << type;
    }
    for (const int world : {2, 3, 4}) {
      Task task = odd_task(shape, {world, world == 2 ? 3 : 1});
      task.norm_type = type;
      task.max_grad_norm = whole_task.max_grad_norm;
      for (const std::string& strategy : strategies_of(world)) {
        SCOPED_TRACE(fmt::format("{}, world {}, norm {}", strategy, world, type));
        const Trained trained = train_on_ranks(task, {strategy, world});
        EXPECT_EQ(trained.error, "");
        EXPECT_EQ(trained.norms, whole.norms);
        EXPECT_EQ(trained.hash, whole.hash);
      }
    }
  }
}

// ---- optimizers ----

// By norm and by value, as gradients here are sums of integers.
TEST(Optimizers, GiveTheSameBitsForEveryStrategyWorldAndAccumulation) {
  const OddShape shape = linear_shape();
  for (const std::string& name : optim::optimizer_names()) {
    for (const double max_value : {0.0, 0.02}) {
      const auto task_for = [&](const Division& division) {
        Task task = odd_task(shape, division);
        task.optimizer = name;
        task.max_grad_norm = max_value > 0 ? 0 : 0.75;
        task.max_grad_value = max_value;
        return task;
      };
      const Trained whole = train_in_one_process(task_for({1, 1}), 1);
      for (const int world : {2, 3, 4}) {
        const Task task = task_for({world, world == 3 ? 3 : 1});
        for (const std::string& strategy : strategies_of(world)) {
          SCOPED_TRACE(fmt::format("{}, {}, world {}, clip {}", name, strategy, world, max_value));
          const Trained trained = train_on_ranks(task, {strategy, world});
          EXPECT_EQ(trained.error, "");
          EXPECT_EQ(trained.norms, whole.norms);
          EXPECT_EQ(trained.hash, whole.hash);
        }
      }
    }
  }
}

// ---- gathered memory ----

// Bytes of a unit whose parameters have these sizes, in a world.
uint64_t unit_bytes(const model::UnitSpec& unit, int world) {
  const auto round_up = [](int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  };
  int64_t end = 0;
  for (const model::ParameterSpec& parameter : unit.parameters) {
    end = round_up(end, 64) + parameter.numel();
  }
  return static_cast<uint64_t>(round_up(end, 64 * world)) * sizeof(float);
}

TEST(FullSharding, GathersTheRootAndAFewUnitsAtMost) {
  for (const bool is_tied : {false, true}) {
    Task task = gpt2_task(is_tied, {1, 1}, 5);
    const model::ModelSpec spec = task.make_model()->spec();
    for (const int world : {2, 3}) {
      task.batch = gpt2_task(is_tied, {world, 1}).batch;
      uint64_t root = unit_bytes(spec.units[0], world);
      if (!is_tied) root += unit_bytes(spec.units.back(), world);
      const uint64_t block = unit_bytes(spec.units[1], world);
      for (const int limit : {1, 2, 3, 4}) {
        const std::string option = fmt::format("limit_all_gathers={}", limit);
        for (const std::string& strategy :
             {"fsdp:" + option, "zero3:" + option, "fsdp:backward_prefetch=backward_post," + option,
              "fsdp:backward_prefetch=none,forward_prefetch=false," + option, "hsdp:" + option}) {
          for (const bool recomputes : {false, true}) {
            SCOPED_TRACE(fmt::format("{} on {} ranks{}{}", strategy, world, is_tied ? ", tied" : "",
                                     recomputes ? ", checkpointed" : ""));
            const Trained trained = train_on_ranks(task, {strategy, world, recomputes});
            ASSERT_EQ(trained.error, "");
            const uint64_t gathered = root + static_cast<uint64_t>(limit) * block;
            const uint64_t staging = root + 2 * block;  // two slots for gradients of blocks
            EXPECT_LE(trained.in_step.peak[STRATA_TAG_GATHERED], gathered);
            EXPECT_LE(trained.in_step.peak[STRATA_TAG_STAGING], staging);
            // Beside these: 4096 of the host's numbers, the most that a small reduction takes.
            uint64_t at_rest = 4096 * sizeof(double);
            for (const int tag :
                 {STRATA_TAG_PARAMETERS, STRATA_TAG_GRADIENTS, STRATA_TAG_OPTIMIZER}) {
              at_rest += trained.at_rest.used[static_cast<size_t>(tag)];
            }
            EXPECT_LE(trained.in_step.peak_total, at_rest + gathered + staging);
          }
        }
      }
    }
  }
}

// ---- repetitions ----

// Each rank computes at a pace of its own, another one in each repetition.
Task jittered_task(int world, uint64_t repetition) {
  Task task = odd_task(every_odd_shape(), {world, 1});
  task.windows = {1, 2, 1};
  task.batch = odd_task(every_odd_shape(), {world, 2}).batch;
  task.make_model = [repetition] {
    auto model = std::make_unique<OddModel>(every_odd_shape());
    const auto thread = std::hash<std::thread::id>()(std::this_thread::get_id());
    auto random = std::make_shared<std::mt19937_64>(repetition * 7919 + thread);
    model->on_entry([random] {
      std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 4 == 0 ? 300 : 0));
    });
    return model;
  };
  return task;
}

TEST(Repetitions, WithOverlapHaveOneResult) {
  const std::vector<std::pair<int, std::string>> placements = {
      {2, "ddp:bucket_cap_mb=0.001,first_bucket_cap_mb=0"},
      {2, "zero1"},
      {2, "zero2"},
      {3, "zero3"},
      {2, "fsdp"},
      {3, "fsdp:backward_prefetch=backward_post,limit_all_gathers=1"},
      {2, "fsdp:sync_each_batch=true"},
      {4, "hsdp:shard_group_size=2"},
      {4, "hsdp:shard_group_size=2,deterministic=false"},
  };
  for (const auto& [world, strategy] : placements) {
    std::set<std::string> hashes;
    std::set<std::vector<double>> norms;
    for (uint64_t repetition = 0; repetition < 20; ++repetition) {
      const Trained trained =
          train_on_ranks(jittered_task(world, repetition), {strategy, world, true});
      ASSERT_EQ(trained.error, "") << strategy;
      hashes.insert(trained.hash);
      norms.insert(trained.norms);
    }
    EXPECT_EQ(hashes.size(), 1U) << strategy;
    EXPECT_EQ(norms.size(), 1U) << strategy;
  }
}

}  // namespace
}  // namespace strata::tests
