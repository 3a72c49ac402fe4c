// Every strategy trains a toy model like one scalar loop, to the last bit, whatever its options,
// its ranks, the hints it gets and the passes between steps.
#include <gtest/gtest.h>

#include "tests/world/toy_host.h"

namespace strata::tests {
namespace {

const std::vector<std::string>& all_strategies() {
  static const std::vector<std::string> all = {
      "ddp",
      "ddp:bucket_cap_mb=0,first_bucket_cap_mb=0",
      "ddp:overlap_comm=false",
      "fsdp",
      "fsdp:reshard_after_forward=false",
      "fsdp:backward_prefetch=backward_post",
      "fsdp:backward_prefetch=none,forward_prefetch=false",
      "fsdp:limit_all_gathers=1",
      "fsdp:limit_all_gathers=64,forward_prefetch=false",
      "fsdp:overlap_comm=false",
      "hsdp:shard_group_size=1",
      "hsdp",
      "zero1",
      "zero1:overlap_comm=false",
      "zero2",
      "zero2:overlap_comm=false",
      "zero3",
      "zero3:prefetch=false,limit_all_gathers=1",
  };
  return all;
}

ToyTraining training_of(uint32_t world, uint32_t accumulation = 1) {
  ToyTraining training;
  training.world = world;
  training.accumulation = accumulation;
  return training;
}

TEST(Strategies, OnOneRankTrainLikeALoop) {
  for (const uint32_t accumulation : {1u, 3u}) {
    for (const char* strategy : {"single", "ddp", "fsdp", "fsdp:sync_each_batch=true", "zero1",
                                 "zero2", "zero2:sync_each_batch=true", "zero3"}) {
      expect_training(strategy, tied_model(), training_of(1, accumulation));
    }
  }
}

TEST(Strategies, OnSeveralRanksTrainLikeALoop) {
  for (const uint32_t world : {2u, 3u, 4u}) {
    for (const std::string& strategy : all_strategies()) {
      for (const ToyModel& model : {tied_model(), chain_model(), partly_frozen_model()}) {
        expect_training(strategy, model, training_of(world));
      }
    }
  }
}

// Every mesh of every world adds in rank order: one group, several, groups of one rank.
TEST(Strategies, OnManyRanksTrainLikeALoop) {
  for (const uint32_t world : {5u, 6u, 7u, 8u}) {
    for (const char* strategy : {"ddp", "fsdp", "zero1", "zero2", "zero3"}) {
      expect_training(strategy, tied_model(), training_of(world));
    }
  }
}

TEST(Strategies, OnEveryMeshTrainLikeALoop) {
  for (uint32_t world = 1; world <= 8; ++world) {
    for (uint32_t size = 1; size <= world; ++size) {
      if (world % size != 0) continue;
      const std::string mesh = "hsdp:shard_group_size=" + std::to_string(size);
      expect_training(mesh, tied_model(), training_of(world));
      expect_training(mesh + ",reshard_after_forward=false", partly_frozen_model(),
                      training_of(world, 2));
    }
  }
}

TEST(Strategies, AddMicroBatchesOnEachRankBeforeTheyAddRanks) {
  for (const std::string& strategy : all_strategies()) {
    expect_training(strategy, tied_model(), training_of(2, 3));
    expect_training(strategy, partly_frozen_model(), training_of(3, 2));
  }
}

TEST(Strategies, AddRanksInEachMicroBatchIfAsked) {
  ToyTraining training = training_of(2, 3);
  training.reduces_each_batch = true;
  for (const ToyModel& model : {tied_model(), chain_model(), partly_frozen_model()}) {
    for (const char* strategy : {"fsdp:sync_each_batch=true", "zero2:sync_each_batch=true",
                                 "zero3:sync_each_batch=true"}) {
      expect_training(strategy, model, training);
    }
  }
}

TEST(Strategies, TrainTheSameWithRecomputation) {
  ToyPasses passes;
  passes.recomputed = {1, 2, 3};
  for (const std::string& strategy : all_strategies()) {
    expect_training(strategy, tied_model(), training_of(2), passes);
    expect_training(strategy, chain_model(), training_of(2, 2), passes);
  }
}

TEST(Strategies, TrainTheSameWithForwardsInBetween) {
  ToyPasses passes;
  passes.inferences = 2;
  for (const std::string& strategy : all_strategies()) {
    expect_training(strategy, tied_model(), training_of(2), passes);
    expect_training(strategy, chain_model(), training_of(3), passes);
  }
}

// A trainable unit without an element has gradients without an element: zero2 took a slot for them
// in each step and gave none back.
TEST(Strategies, TrainUnitsWhoseParametersAreAllEmpty) {
  ToyModel model = chain_model();
  for (ToyParameter& parameter : model.units[1].parameters) parameter.numel = 0;
  for (ToyParameter& parameter : model.units[4].parameters) parameter.numel = 0;
  for (const std::string& strategy : all_strategies()) {
    expect_training(strategy, model, training_of(2));
    expect_training(strategy, model, training_of(3, 2));
  }
}

TEST(Strategies, TrainTheSameWhenParametersGetNoGradient) {
  ToyTraining training = training_of(3, 2);
  training.is_missing = [](const Moment& moment, uint32_t unit, uint32_t parameter) {
    return (moment.rank + moment.step + moment.micro_batch + unit + parameter) % 3 == 0;
  };
  for (const std::string& strategy : all_strategies()) {
    expect_training(strategy, tied_model(), training);
    expect_training(strategy, partly_frozen_model(), training);
  }
}

// A hint is the same on every rank, and may be anything.
TEST(Strategies, TrainTheSameWithWrongHints) {
  for (uint32_t kind = 0; kind < 4; ++kind) {
    ToyPasses passes;
    passes.inferences = 1;
    passes.hint = [kind](uint32_t right, uint32_t call) -> uint32_t {
      switch (kind) {
        case 0: return STRATA_NONE;
        case 1: return call % 4;                // also units that are over, or in use
        case 2: return call * 2654435761u % 4;  // in no order
        default: return call % 3 == 0 ? 3 - call % 4 : right;  // sometimes
      }
    };
    for (const std::string& strategy : all_strategies()) {
      expect_training(strategy, tied_model(), training_of(2, 2), passes);
      expect_training(strategy, chain_model(), training_of(2), passes);
    }
  }
}

TEST(Strategies, LetUpdatesStartAsSoonAsAGradientIsFinal) {
  for (uint32_t kind = 0; kind < 2; ++kind) {
    ToyPasses passes;
    passes.updates_early = true;
    if (kind == 1) passes.hint = [](uint32_t, uint32_t call) { return (call * 7 + 1) % 4; };
    for (const std::string& strategy : all_strategies()) {
      expect_training(strategy, tied_model(), training_of(3), passes);
      expect_training(strategy, chain_model(), training_of(2, 2), passes);
    }
  }
}

TEST(Strategies, TrainRandomModels) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const ToyModel model = random_model(seed);
    ToyPasses passes;
    passes.inferences = seed % 2;
    passes.updates_early = seed % 3 == 0;
    const auto count = static_cast<uint32_t>(model.units.size());
    if (seed % 4 == 1) {
      passes.hint = [=](uint32_t, uint32_t call) {
        const auto hint = static_cast<uint32_t>((call * (seed + 3)) % (count + 1));
        return hint == count ? STRATA_NONE : hint;
      };
    }
    for (uint32_t u = 0; u < count; ++u) {
      const bool is_entered_once = model.first_entry(u) == model.last_entry(u);
      if ((seed + u) % 3 == 0 && is_entered_once) passes.recomputed.insert(u);
    }
    const ToyTraining training =
        training_of(1 + static_cast<uint32_t>(seed % 4), 1 + static_cast<uint32_t>(seed % 3));
    const std::string& strategy = all_strategies()[seed % all_strategies().size()];
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_training(strategy, model, training, passes);
    expect_training("fsdp", model, training, passes);
  }
}

// A window that is given up leaves nothing in the next one.
TEST(Strategies, ForgetAWindowThatIsGivenUp) {
  const ToyModel model = tied_model();
  const ToyTraining training = training_of(2, 2);
  const auto reference = train_reference(model, training);
  for (const std::string strategy : {"ddp", "fsdp", "fsdp:limit_all_gathers=1", "zero1", "zero2"}) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      ASSERT_TRUE(host.attach().ok());
      ASSERT_TRUE(host.initialise().ok());
      const Status given_up = host.micro_batch(0, 0, {});
      ASSERT_TRUE(given_up.ok()) << given_up.message();
      for (uint32_t step = 0; step < training.steps; ++step) {
        const Status status = host.step(step);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      EXPECT_TRUE(host.read_back(training.steps).ok());
      EXPECT_TRUE(host.detach().ok());
    });
  }
}

// A step may be skipped, for example when gradients overflow.
TEST(Strategies, KeepWeightsInASkippedStep) {
  const ToyModel model = chain_model();
  const ToyTraining training = training_of(2);
  const auto reference = train_reference(model, training);
  for (const char* strategy :
       {"ddp", "fsdp", "fsdp:reshard_after_forward=false", "zero1", "zero2"}) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      ASSERT_TRUE(host.attach().ok());
      ASSERT_TRUE(host.initialise().ok());
      for (uint32_t step = 0; step < training.steps; ++step) {
        ASSERT_TRUE(host.micro_batch(step, 0, {}).ok());
        ASSERT_TRUE(host.strategy().before_step().ok());
        ASSERT_TRUE(host.strategy().after_step(0).ok());
        ASSERT_TRUE(host.step(step).ok());
      }
      EXPECT_TRUE(host.read_back(training.steps).ok());
      EXPECT_TRUE(host.detach().ok());
    });
  }
}

TEST(Strategies, AttachAgainBehindDetach) {
  const ToyModel model = tied_model();
  const ToyTraining training = training_of(2);
  const auto reference = train_reference(model, training);
  for (const char* strategy : {"ddp", "fsdp", "hsdp:shard_group_size=1", "zero1", "zero2"}) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      for (int life = 0; life < 3; ++life) {
        const Status attached = host.attach();
        ASSERT_TRUE(attached.ok()) << attached.message();
        ASSERT_TRUE(host.initialise().ok());
        ASSERT_TRUE(host.step(0).ok());
        ASSERT_TRUE(host.read_back(1).ok());
        ASSERT_TRUE(host.detach().ok());
        EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
      }
    });
  }
}

// Weights that are written between passes are those of the next pass, whatever was gathered.
TEST(Strategies, UseWeightsThatWereWrittenBetweenPasses) {
  const ToyModel model = chain_model();
  const ToyTraining training = training_of(2);
  const auto reference = train_reference(model, training);
  for (const std::string& strategy : all_strategies()) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      ASSERT_TRUE(host.attach().ok());
      ASSERT_TRUE(host.initialise().ok());
      ToyPasses passes;
      passes.hint = [](uint32_t, uint32_t call) { return (call + 2) % 5; };
      ASSERT_TRUE(host.step(0, passes).ok());
      ASSERT_TRUE(host.infer(1, passes).ok());
      ASSERT_TRUE(host.initialise().ok());
      ASSERT_TRUE(host.infer(0, passes).ok());
      ASSERT_TRUE(host.step(0, passes).ok());
      EXPECT_TRUE(host.read_back(1).ok());
      EXPECT_TRUE(host.detach().ok());
    });
  }
}

// A forward may come between a backward and its update: what it gathered is old behind the update.
TEST(Strategies, UseUpdatedWeightsWhateverWasGatheredBefore) {
  const ToyModel model = chain_model();
  const ToyTraining training = training_of(2);
  const auto reference = train_reference(model, training);
  for (const std::string& strategy : all_strategies()) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      ASSERT_TRUE(host.attach().ok());
      ASSERT_TRUE(host.initialise().ok());
      for (uint32_t step = 0; step < training.steps; ++step) {
        ASSERT_TRUE(host.micro_batch(step, 0, {}).ok());
        ASSERT_TRUE(host.infer(step).ok());
        ASSERT_TRUE(host.update().ok());
      }
      EXPECT_TRUE(host.read_back(training.steps).ok());
      EXPECT_TRUE(host.detach().ok());
    });
  }
}

}  // namespace
}  // namespace strata::tests
