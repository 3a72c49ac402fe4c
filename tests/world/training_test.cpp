// GPT-2 trained by every strategy on ranks as threads: the same numbers to the last bit, and those
// of one process.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "strata/formats/safetensors.h"
#include "strata/strategy/describe.h"
#include "strata/train/optimization.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "tests/world/ranks.h"

namespace strata::tests {
namespace {

constexpr int kSteps = 4;

// What a training gave, the same on every rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string weights;
  uint64_t sent_bytes = 0;  // in the last step, by rank 0
};

struct Recipe {
  std::string strategy;
  int world = 1;
  int accumulation = 1;
  bool recompute = false;
  bool is_checked = true;
};

std::string folder() { return std::string(STRATA_SOURCE_DIR) + "/tests/data/parity/gpt2-tied"; }

// Two batches in turn.
at::Tensor ids_of_step(int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step % 2));
  return at::randint(0, 257, {12, 16}, generator, at::kLong);
}

void train_rank(const Recipe& recipe, RankOfTest& rank, Trained& out, std::mutex& mutex) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  at::set_num_threads(1);
  auto instance =
      plugin::StrategyInstance::create(find_strategy(recipe.strategy), rank.world,
                                       {STRATA_DEVICE_CPU, 0}, rank.host->abi(), recipe.is_checked);
  ASSERT_TRUE(instance.ok()) << instance.status().message();
  auto model = zoo::load_model(folder()).value();
  auto attached = strategy::Session::attach(std::move(instance).value(), *rank.host, model->spec());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  strategy::Session& session = **attached;
  model->bind_units(session.units());
  if (recipe.recompute) session.set_recompute(hooks::UnitGraph::every(1));
  const Status filled = train::initialize_weights(session, *model, "", 7);
  ASSERT_TRUE(filled.ok()) << filled.message();
  auto optimizer = train::make_optimizer({}, session, *rank.host).value();
  train::Stepper stepper(session, *rank.host, *model, *optimizer, {{.max_norm = 1}});

  Trained trained;
  const int64_t rows = 12 / rank.world.size / recipe.accumulation;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor ids = ids_of_step(step);
    std::vector<zoo::Batch> batches;
    for (int micro = 0; micro < recipe.accumulation; ++micro) {
      zoo::Batch batch;
      batch.input_ids = ids.narrow(0, (micro * rank.world.size + rank.world.rank) * rows, rows);
      batch.labels = batch.input_ids;
      batches.push_back(batch);
    }
    const auto result = stepper.step(batches, 1e-2);
    ASSERT_TRUE(result.ok()) << result.status().message();
    trained.losses.push_back(result->loss);
    trained.norms.push_back(result->grad_norm);
    trained.sent_bytes = result->sent_bytes;
  }
  const auto hash = train::weight_hash(session);
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  trained.weights = *hash;
  const Status detached = session.detach();
  EXPECT_TRUE(detached.ok()) << detached.message();
  const std::lock_guard lock(mutex);
  if (!out.weights.empty()) {
    EXPECT_EQ(out.losses, trained.losses) << "ranks disagree";
    EXPECT_EQ(out.weights, trained.weights) << "ranks disagree";
  }
  if (out.weights.empty() || rank.world.rank == 0) out = trained;
}

Trained train(const Recipe& recipe) {
  Trained out;
  std::mutex mutex;
  run_ranks(recipe.world, [&](RankOfTest& rank) { train_rank(recipe, rank, out, mutex); });
  EXPECT_EQ(out.losses.size(), static_cast<size_t>(kSteps)) << recipe.strategy;
  return out;
}

void expect_same_bits(const Trained& a, const Trained& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.weights, b.weights) << what;
}

TEST(Training, OfOneRankIsTheSameUnderEveryStrategy) {
  const Trained single = train({"single"});
  expect_same_bits(train({"ddp"}), single, "ddp");
  expect_same_bits(train({"fsdp"}), single, "fsdp");
  EXPECT_LT(single.losses[3], single.losses[1] - 0.1);
}

TEST(Training, UnderDdpAndFsdpIsEqualBitForBit) {
  for (const int world : {2, 3, 4}) {
    const Trained ddp = train({"ddp", world});
    for (const char* options :
         {"", ":reshard_after_forward=false", ":backward_prefetch=backward_post",
          ":backward_prefetch=none,forward_prefetch=false,limit_all_gathers=1",
          ":overlap_comm=false"}) {
      expect_same_bits(train({std::string("fsdp") + options, world}), ddp,
                       "world " + std::to_string(world) + " fsdp" + options);
    }
    for (const char* options : {":bucket_cap_mb=0,first_bucket_cap_mb=0", ":overlap_comm=false"}) {
      expect_same_bits(train({std::string("ddp") + options, world}), ddp,
                       "world " + std::to_string(world) + " ddp" + options);
    }
  }
}

TEST(Training, WithAccumulationIsEqualBitForBit) {
  for (const int world : {1, 2}) {
    const Trained ddp = train({"ddp", world, 3});
    expect_same_bits(train({"fsdp", world, 3}), ddp, "fsdp, world " + std::to_string(world));
  }
}

TEST(Training, WithRecomputationIsEqualBitForBit) {
  const Trained plain = train({"fsdp", 2});
  expect_same_bits(train({"fsdp", 2, 1, true}), plain, "fsdp");
  expect_same_bits(train({"ddp", 2, 1, true}), plain, "ddp");
}

TEST(Training, OnSeveralRanksFollowsOneProcessWithTheWholeBatch) {
  const Trained single = train({"single"});
  for (const Recipe& recipe : {Recipe{"ddp", 2}, Recipe{"fsdp", 3}, Recipe{"fsdp", 2, 3},
                               Recipe{"single", 1, 4}, Recipe{"fsdp:sync_each_batch=true", 2, 3}}) {
    const Trained other = train(recipe);
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<size_t>(step);
      EXPECT_NEAR(other.losses[at], single.losses[at], 1e-6 * single.losses[at])
          << recipe.strategy << " step " << step;
    }
  }
}

TEST(Training, WithoutTheCheckedModeGivesTheSame) {
  expect_same_bits(train({"fsdp", 2, 1, false, false}), train({"fsdp", 2}), "unchecked");
}

TEST(Training, SendsWhatItsStrategyEstimates) {
  const auto model = zoo::load_model(folder()).value();
  // Padded to 64 x 2 elements a unit: embeddings 257 x 48, 64 x 48 and two norms; blocks.
  const World world{0, 2, 0, 2, 0, 1};
  for (const char* strategy : {"ddp", "fsdp", "fsdp:reshard_after_forward=false"}) {
    const Trained trained = train({strategy, 2, 1, false, false});
    const strategy::ModelDescription description(model->spec(), {});
    const auto estimate = plugin::StrategyInstance::estimate(
        find_strategy(strategy), world, {STRATA_DEVICE_CPU, 0}, description.model());
    ASSERT_TRUE(estimate.ok()) << estimate.status().message();
    EXPECT_EQ(trained.sent_bytes, estimate->sent_bytes_per_step) << strategy;
  }
}

}  // namespace
}  // namespace strata::tests
