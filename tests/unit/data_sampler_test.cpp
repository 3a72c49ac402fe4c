#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "strata/data/sampler.h"

namespace strata::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// All ranks of one world, walking in step.
class Ranks {
 public:
  explicit Ranks(SamplerOptions options) : options_(options) {
    for (int rank = 0; rank < options.world; ++rank) {
      options.rank = rank;
      auto sampler = DistributedSampler::create(options);
      EXPECT_TRUE(sampler.ok()) << sampler.status().message();
      samplers_.push_back(std::move(*sampler));
    }
  }

  // The samples of one step in the order of places: micro-batch, rank, row.
  std::vector<int64_t> step() {
    std::vector<int64_t> samples;
    for (int64_t micro = 0; micro < options_.accumulation; ++micro)
      for (DistributedSampler& sampler : samplers_) {
        std::vector<int64_t> batch(options_.batch);
        sampler.micro_batch(micro, batch);
        samples.insert(samples.end(), batch.begin(), batch.end());
      }
    for (DistributedSampler& sampler : samplers_) sampler.advance();
    for (DistributedSampler& sampler : samplers_) EXPECT_EQ(sampler.state(), state());
    return samples;
  }
  std::vector<std::vector<int64_t>> steps(int count) {
    std::vector<std::vector<int64_t>> all;
    for (int i = 0; i < count; ++i) all.push_back(step());
    return all;
  }
  json state() const { return samplers_[0].state(); }
  Status restore(const json& state) {
    for (DistributedSampler& sampler : samplers_) {
      const Status status = sampler.restore(state);
      if (!status.ok()) return status;
    }
    return {};
  }
  const DistributedSampler& first() const { return samplers_[0]; }

 private:
  SamplerOptions options_;
  std::vector<DistributedSampler> samplers_;
};

TEST(Sampler, VisitsEachSampleOnceAnEpochExceptThoseThatFillNoStep) {
  for (const int64_t size : {12, 13, 100, 1000})
    for (const int world : {1, 2, 3}) {
      Ranks ranks({.size = size, .world = world, .batch = 2, .accumulation = 2, .seed = 5});
      const int64_t steps = ranks.first().steps_per_epoch();
      EXPECT_EQ(steps, size / (world * 4));
      std::vector<std::vector<int64_t>> epochs;
      for (int epoch = 0; epoch < 3; ++epoch) {
        std::vector<int64_t> seen;
        for (int64_t i = 0; i < steps; ++i) {
          EXPECT_EQ(ranks.first().epoch(), epoch);
          for (const int64_t sample : ranks.step()) seen.push_back(sample);
        }
        epochs.push_back(seen);
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
        EXPECT_EQ(static_cast<int64_t>(seen.size()), steps * world * 4);
        EXPECT_GE(seen.front(), 0);
        EXPECT_LT(seen.back(), size);
      }
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
    }
}

TEST(Sampler, TakesTheSameSamplesHoweverTheGlobalBatchIsDivided) {
  const auto expected = Ranks({.size = 101, .world = 1, .batch = 12, .seed = 3}).steps(30);
  for (const int world : {1, 2, 3, 4, 6, 12})
    for (const int64_t accumulation : {1, 2, 3}) {
      if (12 % (world * accumulation) != 0) continue;
      Ranks ranks({.size = 101,
                   .world = world,
                   .batch = 12 / (world * accumulation),
                   .accumulation = accumulation,
                   .seed = 3});
      EXPECT_EQ(ranks.steps(30), expected) << world << " x " << accumulation;
    }
}

TEST(Sampler, ContinuesAtEveryPositionAlsoInAnotherWorld) {
  const SamplerOptions options{.size = 50, .world = 2, .batch = 4, .seed = 11};
  const auto expected = Ranks(options).steps(30);
  for (int done = 0; done < 20; ++done) {
    Ranks before(options);
    (void)before.steps(done);
    const json state = json::parse(before.state().dump());
    for (const SamplerOptions& other :
         {options, SamplerOptions{.size = 50, .world = 4, .batch = 2, .seed = 11},
          SamplerOptions{.size = 50, .world = 1, .batch = 4, .accumulation = 2, .seed = 11}}) {
      Ranks after(other);
      (void)after.steps(3);
      ASSERT_TRUE(after.restore(state).ok());
      const auto rest = after.steps(10);
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + done)) << done;
    }
  }
}

TEST(Sampler, RepeatsNoSampleOfAnEpochWhenTheGlobalBatchChanges) {
  Ranks before({.size = 50, .world = 2, .batch = 4, .seed = 1});
  std::vector<int64_t> seen;
  for (int i = 0; i < 3; ++i)
    for (const int64_t sample : before.step()) seen.push_back(sample);
  Ranks after({.size = 50, .world = 3, .batch = 4, .seed = 1});
  ASSERT_TRUE(after.restore(before.state()).ok());
  for (int i = 0; i < 2; ++i)
    for (const int64_t sample : after.step()) seen.push_back(sample);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
  EXPECT_EQ(after.first().epoch(), 1);  // the last 2 of 50 fill no step of 12
  // A step of 40 does not fit behind the 24 that are done.
  Ranks large({.size = 50, .world = 1, .batch = 40, .seed = 1});
  ASSERT_TRUE(large.restore(before.state()).ok());
  EXPECT_EQ(large.first().epoch(), 1);
  EXPECT_EQ(large.first().position(), 0);
}

TEST(Sampler, KeepsItsOrderForEver) {
  // Checkpoints depend on it. Made by an independent program from the description in the header.
  Ranks ranks({.size = 10, .world = 1, .batch = 10, .seed = 42});
  EXPECT_THAT(ranks.step(), ElementsAre(9, 8, 3, 5, 1, 4, 6, 0, 7, 2));
  EXPECT_THAT(ranks.step(), ElementsAre(8, 3, 6, 4, 1, 7, 2, 9, 0, 5));
}

TEST(Sampler, DependsOnTheSeedAndGoesInOrderWithoutShuffling) {
  EXPECT_NE(Ranks({.size = 100, .batch = 100, .seed = 1}).step(),
            Ranks({.size = 100, .batch = 100, .seed = 2}).step());
  std::vector<int64_t> in_order(100);
  std::iota(in_order.begin(), in_order.end(), 0);
  Ranks ranks({.size = 100, .world = 2, .batch = 50, .seed = 1, .shuffle = false});
  EXPECT_EQ(ranks.step(), in_order);
  EXPECT_EQ(ranks.step(), in_order);
}

TEST(Sampler, PutsEachSampleInEachPlaceAboutEquallyOften) {
  std::vector<std::vector<int>> counts(5, std::vector<int>(5));
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    const auto order = Ranks({.size = 5, .batch = 5, .seed = seed}).step();
    for (size_t place = 0; place < 5; ++place) ++counts[place][order[place]];
  }
  for (const auto& place : counts)
    for (const int count : place) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
}

TEST(Sampler, RefusesWhatCannotBeDividedWithTheValues) {
  const auto says = [](SamplerOptions options) {
    const auto sampler = DistributedSampler::create(options);
    EXPECT_EQ(sampler.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(sampler.status().message(), HasSubstr("HINT"));
    return sampler.status().message();
  };
  EXPECT_THAT(says({.size = 0}), HasSubstr("no samples"));
  EXPECT_THAT(says({.size = 9, .world = 2, .rank = 2}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(says({.size = 9, .world = 0}), HasSubstr("of 0 ranks"));
  EXPECT_THAT(says({.size = 9, .rank = -1}), HasSubstr("rank -1"));
  EXPECT_THAT(says({.size = 9, .batch = 0}), HasSubstr("--per-device-train-batch-size"));
  EXPECT_THAT(says({.size = 9, .accumulation = 0}), HasSubstr("--gradient-accumulation-steps"));
  EXPECT_THAT(says({.size = 3, .world = 4}), AllOf(HasSubstr("4 ranks"), HasSubstr("3 samples")));
  EXPECT_THAT(says({.size = 15, .world = 2, .batch = 4, .accumulation = 2}),
              AllOf(HasSubstr("2 ranks x 4 samples x 2"), HasSubstr("15")));
  EXPECT_THAT(says({.size = 15, .world = 2, .batch = INT64_MAX, .accumulation = 2}),
              HasSubstr("9223372036854775807"));
}

TEST(Sampler, RefusesAStateOfAnotherRunAndStaysAsItWas) {
  const SamplerOptions options{.size = 20, .batch = 4, .seed = UINT64_MAX};
  Ranks ranks(options);
  (void)ranks.steps(2);
  const json state = ranks.state();
  const auto says = [&](const char* key, const json& value) {
    json changed = state;
    changed[key] = value;
    const Status status = ranks.restore(changed);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << key;
    EXPECT_THAT(status.message(), HasSubstr("HINT"));
    EXPECT_EQ(ranks.state(), state);
    return status.message();
  };
  EXPECT_THAT(says("size", 21), AllOf(HasSubstr("21"), HasSubstr("20")));
  EXPECT_THAT(says("seed", 3), AllOf(HasSubstr("--seed 3"), HasSubstr("18446744073709551615")));
  EXPECT_THAT(says("seed", "x"), HasSubstr("'seed'"));
  EXPECT_THAT(says("position", 21), HasSubstr("position 21"));
  EXPECT_THAT(says("position", -1), HasSubstr("position -1"));
  EXPECT_THAT(says("epoch", -1), HasSubstr("epoch -1"));
  EXPECT_THAT(says("epoch", 1.5), HasSubstr("'epoch'"));
  EXPECT_FALSE(ranks.restore(json::array()).ok());
  EXPECT_TRUE(ranks.restore(state).ok());
}

}  // namespace
}  // namespace strata::data
