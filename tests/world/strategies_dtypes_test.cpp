// 16-bit units: in every combination of dtypes all strategies train like one scalar loop, to the
// last bit, and so like each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>

#include "tests/world/toy_host.h"

namespace strata::tests {
namespace {

constexpr int32_t kF32 = STRATA_DTYPE_F32;
constexpr int32_t kBF16 = STRATA_DTYPE_BF16;
constexpr int32_t kF16 = STRATA_DTYPE_F16;

// One of each kind of memory and message.
const std::vector<std::string>& all_strategies() {
  static const std::vector<std::string> all = {
      "ddp",
      "ddp:bucket_cap_mb=0,first_bucket_cap_mb=0",
      "ddp:overlap_comm=false",
      "fsdp",
      "fsdp:reshard_after_forward=false,overlap_comm=false",
      "hsdp:shard_group_size=1",
      "zero1",
      "zero2",
      "zero2:overlap_comm=false",
      "zero3:prefetch=false,limit_all_gathers=1",
  };
  return all;
}

ToyTraining training_of(uint32_t world, uint32_t accumulation = 1) {
  ToyTraining training;
  training.world = world;
  training.accumulation = accumulation;
  training.steps = 2;
  return training;
}

struct DtypesCase {
  const char* name;
  ToyDtypes dtypes;
};
void PrintTo(const DtypesCase& one, std::ostream* out) { *out << one.name; }

class Dtypes : public ::testing::TestWithParam<DtypesCase> {};

// compute, reduce, accumulate
INSTANTIATE_TEST_SUITE_P(Of, Dtypes,
                         ::testing::Values(DtypesCase{"bf16", {kBF16, kF32, kF32}},
                                           DtypesCase{"bf16_reduce", {kBF16, kBF16, kF32}},
                                           DtypesCase{"bf16_accumulate", {kBF16, kF32, kBF16}},
                                           DtypesCase{"bf16_all", {kBF16, kBF16, kBF16}},
                                           DtypesCase{"f16", {kF16, kF32, kF32}},
                                           DtypesCase{"f16_reduce", {kF16, kF16, kF32}},
                                           DtypesCase{"f16_accumulate", {kF16, kF32, kF16}},
                                           DtypesCase{"f16_all", {kF16, kF16, kF16}},
                                           DtypesCase{"f32_reduce_bf16", {kF32, kBF16, kF32}},
                                           DtypesCase{"f32_accumulate_f16", {kF32, kF32, kF16}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Dtypes, TrainLikeALoopUnderEveryStrategy) {
  for (const uint32_t world : {1u, 2u, 3u}) {
    std::vector<std::string> strategies = all_strategies();
    if (world == 1) strategies.push_back("single");
    for (const uint32_t accumulation : {1u, 3u}) {
      expect_trainings(strategies, with_dtypes(tied_model(), GetParam().dtypes),
                       training_of(world, accumulation));
    }
    expect_trainings(strategies, with_dtypes(partly_frozen_model(), GetParam().dtypes),
                     training_of(world, 2));
  }
}

TEST_P(Dtypes, AddRanksInEachMicroBatchIfAsked) {
  for (const uint32_t world : {2u, 3u}) {
    ToyTraining training = training_of(world, 3);
    training.reduces_each_batch = true;
    expect_trainings({"fsdp:sync_each_batch=true", "zero2:sync_each_batch=true",
                      "zero3:sync_each_batch=true,overlap_comm=false"},
                     with_dtypes(chain_model(), GetParam().dtypes), training);
  }
}

TEST_P(Dtypes, AddInRankOrderOnEveryMesh) {
  for (const uint32_t world : {4u, 6u}) {
    std::vector<std::string> meshes = {"ddp"};
    for (uint32_t size = 1; size <= world; ++size) {
      if (world % size == 0) meshes.push_back("hsdp:shard_group_size=" + std::to_string(size));
    }
    expect_trainings(meshes, with_dtypes(tied_model(), GetParam().dtypes), training_of(world, 2));
  }
}

// Written weights are read back as fp32 masters, and are those of the next pass, rounded.
TEST_P(Dtypes, UseWeightsThatWereWrittenBetweenPasses) {
  const ToyModel model = with_dtypes(chain_model(), GetParam().dtypes);
  for (const uint32_t world : {1u, 2u}) {
    const ToyTraining training = training_of(world);
    const auto reference = train_reference(model, training);
    for (const std::string& strategy : all_strategies()) {
      const plugin::ResolvedStrategy resolved = find_strategy(strategy);
      run_ranks(static_cast<int>(world), [&](RankOfTest& rank) {
        ToyHost host(rank, resolved, model, training, reference);
        ASSERT_TRUE(host.attach().ok());
        ASSERT_TRUE(host.initialise().ok());
        ASSERT_TRUE(host.step(0).ok());
        ASSERT_TRUE(host.infer(1).ok());
        ASSERT_TRUE(host.read_back(1).ok());
        ASSERT_TRUE(host.initialise().ok());
        ASSERT_TRUE(host.read_back(0).ok());
        ASSERT_TRUE(host.infer(0).ok());
        ASSERT_TRUE(host.step(0).ok());
        EXPECT_TRUE(host.read_back(1).ok());
        EXPECT_TRUE(host.detach().ok());
      });
    }
  }
}

TEST(MixedDtypes, MayDifferFromUnitToUnit) {
  for (uint64_t first = 0; first < 8; ++first) {
    SCOPED_TRACE("dtypes " + std::to_string(first));
    expect_trainings(all_strategies(), with_mixed_dtypes(chain_model(), first), training_of(2, 2));
    ToyTraining each = training_of(3, 2);
    each.reduces_each_batch = true;
    expect_trainings({"fsdp:sync_each_batch=true", "zero2:sync_each_batch=true"},
                     with_mixed_dtypes(partly_frozen_model(), first), each);
  }
}

TEST(MixedDtypes, TrainTheSameWithRecomputationInferenceAndEarlyUpdates) {
  ToyPasses passes;
  passes.recomputed = {1, 2, 3};
  passes.inferences = 1;
  passes.updates_early = true;
  for (uint64_t first = 0; first < 8; first += 3) {
    expect_trainings(all_strategies(), with_mixed_dtypes(tied_model(), first), training_of(2),
                     passes);
    passes.hint = [](uint32_t, uint32_t call) { return (call * 7 + 1) % 4; };
    expect_trainings(all_strategies(), with_mixed_dtypes(chain_model(), first), training_of(3, 2),
                     passes);
  }
}

TEST(MixedDtypes, TrainRandomModels) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string& strategy = all_strategies()[seed % all_strategies().size()];
    expect_trainings(
        {strategy, "fsdp"}, with_mixed_dtypes(random_model(seed), seed / 3),
        training_of(1 + static_cast<uint32_t>(seed % 4), 1 + static_cast<uint32_t>(seed % 3)));
  }
}

// A step may be skipped, as gradients of fp16 ask for, and a window be given up.
TEST(MixedDtypes, KeepWeightsInASkippedStepAndForgetAWindow) {
  const ToyModel model = with_mixed_dtypes(chain_model(), 2);
  const ToyTraining training = training_of(2, 2);
  const auto reference = train_reference(model, training);
  for (const std::string& strategy : all_strategies()) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      for (int life = 0; life < 2; ++life) {
        ASSERT_TRUE(host.attach().ok());
        ASSERT_TRUE(host.initialise().ok());
        ASSERT_TRUE(host.micro_batch(0, 0, {}).ok());
        for (uint32_t step = 0; step < training.steps; ++step) {
          ASSERT_TRUE(host.micro_batch(step, 0, {}).ok());
          ASSERT_TRUE(host.micro_batch(step, 1, {}).ok());
          ASSERT_TRUE(host.strategy().before_step().ok());
          ASSERT_TRUE(host.strategy().after_step(0).ok());
          ASSERT_TRUE(host.step(step).ok());
        }
        EXPECT_TRUE(host.read_back(training.steps).ok());
        EXPECT_TRUE(host.detach().ok());
        EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
      }
    });
  }
}

TEST(MixedDtypes, OfRanksThatDifferAreNamed) {
  const ToyModel model = with_dtypes(chain_model(), {kBF16, kF32, kF32});
  ToyModel other = model;
  other.units[1].dtypes.accumulate = kBF16;
  const ToyTraining training = training_of(2);
  const auto reference = train_reference(model, training);
  for (const char* strategy : {"ddp", "fsdp", "zero1", "zero2"}) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, rank.world.rank == 1 ? other : model, training, reference);
      const Status status = host.attach();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(status.message(), ::testing::HasSubstr("dtypes 2/1/2"));
      EXPECT_THAT(status.message(), ::testing::HasSubstr("dtypes 2/1/1"));
    });
  }
}

// ---- infinity and NaN ----

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// A number of bf16 and of fp16, whose largest is 65504: two of these are too many for it.
constexpr float kLarge = 40960;

// Elements of the first parameter of unit 1: what two ranks have there, and what arrives.
struct Overflow {
  uint64_t index;
  float ranks[2];
  float sum;
  float sum_in_f16;
};
constexpr Overflow kOverflows[] = {{3, {kInf, 1}, kInf, kInf},
                                   {4, {1, -kInf}, -kInf, -kInf},
                                   {5, {kNan, 1}, kNan, kNan},
                                   {6, {kInf, -kInf}, kNan, kNan},
                                   {7, {kLarge, kLarge}, 2 * kLarge, kInf},
                                   {8, {kLarge, -kLarge}, 0, 0}};

float bent(const Moment& moment, const Place& place, float gradient) {
  if (place.unit != 1 || place.parameter != 0) return gradient;
  for (const Overflow& overflow : kOverflows) {
    if (place.index != overflow.index) continue;
    return overflow.ranks[moment.rank] / 2;  // two parts make one gradient
  }
  return gradient;
}

void expect_overflows(const ToyHost& host, bool is_in_f16) {
  for (size_t i = 0; i < host.partitions().size(); ++i) {
    const strata_partition_t& partition = host.partitions()[i];
    if (partition.unit != 1 || partition.offset != 0) continue;  // all are in the first slice
    for (const Overflow& overflow : kOverflows) {
      const float found = host.gradients()[i][overflow.index];
      const float expected = is_in_f16 ? overflow.sum_in_f16 : overflow.sum;
      const bool is_same = found == expected || (std::isnan(found) && std::isnan(expected));
      EXPECT_TRUE(is_same) << overflow.index << ": " << found << ", not " << expected;
    }
  }
}

// What is too large is for the host to see: it comes through, whatever adds it up.
TEST(MixedDtypes, LetInfinityAndNanThrough) {
  ToyTraining training = training_of(2);
  training.bend = bent;
  for (const ToyDtypes dtypes : {ToyDtypes{kF16, kF16, kF16}, ToyDtypes{kF16, kF16, kF32},
                                 ToyDtypes{kBF16, kBF16, kF32}, ToyDtypes{kBF16, kF32, kBF16}}) {
    const ToyModel model = with_dtypes(chain_model(), dtypes);
    const auto reference = train_reference(model, training);
    for (const std::string& strategy : all_strategies()) {
      const plugin::ResolvedStrategy resolved = find_strategy(strategy);
      SCOPED_TRACE(strategy + ", reduced in " + std::to_string(dtypes.reduce));
      run_ranks(2, [&](RankOfTest& rank) {
        ToyHost host(rank, resolved, model, training, reference);
        ASSERT_TRUE(host.attach().ok());
        ASSERT_TRUE(host.initialise().ok());
        ASSERT_TRUE(host.micro_batch(0, 0, {}).ok());
        expect_overflows(host, dtypes.reduce == kF16);
        ASSERT_TRUE(host.strategy().before_step().ok());
        ASSERT_TRUE(host.strategy().after_step(0).ok());
        EXPECT_TRUE(host.read_back(0).ok());
        EXPECT_TRUE(host.infer(0).ok());
        EXPECT_TRUE(host.detach().ok());
      });
    }
  }
}

}  // namespace
}  // namespace strata::tests
