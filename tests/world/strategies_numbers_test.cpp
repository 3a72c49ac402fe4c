// Bytes at rest, bytes gathered and bytes sent are what the formulas and estimate() say, exactly.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/world/toy_host.h"

namespace strata::tests {
namespace {

// Counters of one rank in its second step, and what was estimated.
struct Measured {
  strata_estimate_t estimate{};
  device::PlaceStats at_rest;
  device::PlaceStats in_step;
  uint64_t sent_bytes = 0;
  uint64_t unit_numel = 0;  // padded, of all units
};

Measured measure(const std::string& strategy, const ToyModel& model, uint32_t world) {
  ToyTraining training;
  training.world = world;
  const auto reference = train_reference(model, training);
  const plugin::ResolvedStrategy resolved = find_strategy(strategy);
  Measured measured;
  run_ranks(static_cast<int>(world), [&](RankOfTest& rank) {
    ToyHost host(rank, resolved, model, training, reference);
    // Sums in another order: other last bits, the same bytes.
    if (strategy.find("deterministic=false") != std::string::npos) host.expect_failure();
    ASSERT_TRUE(host.attach().ok());
    ASSERT_TRUE(host.initialise().ok());
    ASSERT_TRUE(host.step(0).ok());
    const device::MemoryStats at_rest = rank.host->memory_stats();
    rank.host->reset_memory_peaks();
    rank.host->take_sent_bytes();
    ASSERT_TRUE(host.step(1).ok());
    if (rank.world.rank + 1 != rank.world.size) return (void)host.detach();
    ToyDescription sizes(model);
    const auto estimate = plugin::StrategyInstance::estimate(resolved, rank.world,
                                                             {STRATA_DEVICE_CPU, 0}, sizes.model());
    ASSERT_TRUE(estimate.ok()) << estimate.status().message();
    measured.estimate = *estimate;
    measured.sent_bytes = rank.host->take_sent_bytes();
    measured.at_rest = at_rest.device;
    measured.in_step = rank.host->memory_stats().device;
    for (uint32_t u = 0; u < model.units.size(); ++u) {
      measured.unit_numel += host.description().unit(u).numel;
    }
    EXPECT_TRUE(host.detach().ok());
  });
  return measured;
}

const std::vector<std::string>& all_strategies() {
  static const std::vector<std::string> all = {
      "ddp",
      "ddp:bucket_cap_mb=0,first_bucket_cap_mb=0",
      "ddp:overlap_comm=false",
      "fsdp",
      "fsdp:reshard_after_forward=false",
      "fsdp:backward_prefetch=none,forward_prefetch=false",
      "fsdp:limit_all_gathers=1",
      "fsdp:limit_all_gathers=64",
      "fsdp:overlap_comm=false",
      "zero1",
      "zero2",
      "zero2:overlap_comm=false",
      "zero3",
  };
  return all;
}

void expect_estimate(const std::string& strategy, const ToyModel& model, uint32_t world) {
  SCOPED_TRACE(strategy + " on " + std::to_string(world) + " ranks");
  const Measured m = measure(strategy, model, world);
  EXPECT_EQ(m.at_rest.used[STRATA_TAG_PARAMETERS], m.estimate.param_bytes);
  EXPECT_EQ(m.at_rest.used[STRATA_TAG_GRADIENTS], m.estimate.grad_bytes);
  EXPECT_EQ(m.at_rest.used[STRATA_TAG_OPTIMIZER], m.estimate.master_bytes);
  EXPECT_EQ(m.in_step.peak[STRATA_TAG_PARAMETERS], m.estimate.param_bytes);
  EXPECT_EQ(m.in_step.peak[STRATA_TAG_GATHERED], m.estimate.gathered_peak_bytes);
  EXPECT_EQ(m.in_step.peak[STRATA_TAG_STAGING], m.estimate.staging_peak_bytes);
  EXPECT_EQ(m.sent_bytes, m.estimate.sent_bytes_per_step);
}

TEST(Estimates, AreWhatIsMeasuredToTheByte) {
  for (const uint32_t world : {1u, 2u, 3u, 4u}) {
    for (const std::string& strategy : all_strategies()) {
      for (const ToyModel& model : {tied_model(), chain_model(), partly_frozen_model()}) {
        expect_estimate(strategy, model, world);
      }
    }
  }
  expect_estimate("single", tied_model(), 1);
}

TEST(Estimates, Of16BitUnitsAreWhatIsMeasured) {
  for (const uint32_t world : {1u, 2u, 3u}) {
    for (const std::string& strategy : all_strategies()) {
      for (uint64_t first = 0; first < 8; first += 2) {
        SCOPED_TRACE("dtypes " + std::to_string(first));
        expect_estimate(strategy, with_mixed_dtypes(chain_model(), first), world);
        expect_estimate(strategy, with_mixed_dtypes(partly_frozen_model(), first), world);
      }
    }
  }
  expect_estimate("single", with_mixed_dtypes(tied_model(), 0), 1);
}

TEST(Estimates, OfEveryMeshAreWhatIsMeasured) {
  for (const uint32_t world : {1u, 2u, 4u, 6u}) {
    for (uint32_t size = 1; size <= world; ++size) {
      if (world % size != 0) continue;
      const std::string mesh = "hsdp:shard_group_size=" + std::to_string(size);
      for (const ToyModel& model : {tied_model(), partly_frozen_model()}) {
        expect_estimate(mesh, model, world);
        expect_estimate(mesh + ",deterministic=false", model, world);
        expect_estimate(mesh, with_mixed_dtypes(model, 1), world);
      }
    }
  }
}

TEST(Estimates, OfRandomModelsAreWhatIsMeasured) {
  for (uint64_t seed = 100; seed < 118; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto world = static_cast<uint32_t>(1 + seed % 4);
    expect_estimate(all_strategies()[seed % all_strategies().size()], random_model(seed), world);
  }
}

uint64_t padded(uint64_t numel, uint64_t multiple) {
  return (numel + multiple - 1) / multiple * multiple;
}

// The formulas by hand, for the chain: 400; 130 and 5; 64; 1, 1 and 1; 777 elements.
std::vector<uint64_t> chain_numels(uint64_t world) {
  const uint64_t m = 64 * world;
  return {padded(400, m), padded(192 + 5, m), padded(64, m), padded(128 + 1, m), padded(777, m)};
}

TEST(Formulas, HoldForDdp) {
  for (const uint32_t world : {1u, 2u, 3u, 4u}) {
    uint64_t p = 0;
    for (const uint64_t numel : chain_numels(world)) p += numel;
    const Measured m = measure("ddp", chain_model(), world);
    EXPECT_EQ(m.unit_numel, p);
    EXPECT_EQ(m.at_rest.used[STRATA_TAG_PARAMETERS], 4 * p);
    EXPECT_EQ(m.at_rest.used[STRATA_TAG_GRADIENTS], 4 * p);
    EXPECT_EQ(m.in_step.peak[STRATA_TAG_GATHERED], 0u);
    EXPECT_EQ(m.in_step.peak[STRATA_TAG_STAGING], 0u);
    EXPECT_EQ(m.sent_bytes * world, (world - 1) * 2 * 4 * p);
  }
}

TEST(Formulas, HoldForFsdp) {
  for (const uint32_t world : {2u, 3u, 4u}) {
    const std::vector<uint64_t> numels = chain_numels(world);
    uint64_t p = 0;
    for (const uint64_t numel : numels) p += numel;
    const uint64_t roots = numels[0] + numels[4];  // gathered once
    const uint64_t largest = std::max({numels[1], numels[2], numels[3]});
    const Measured m = measure("fsdp", chain_model(), world);
    EXPECT_EQ(m.at_rest.used[STRATA_TAG_PARAMETERS], 4 * p / world);
    EXPECT_EQ(m.at_rest.used[STRATA_TAG_GRADIENTS], 4 * p / world);
    EXPECT_EQ(m.in_step.peak[STRATA_TAG_GATHERED], 4 * (roots + 2 * largest));
    EXPECT_EQ(m.in_step.peak[STRATA_TAG_STAGING], 4 * (roots + 2 * largest));
    EXPECT_EQ(m.sent_bytes * world, (world - 1) * 4 * (3 * p - roots));

    const Measured kept = measure("fsdp:reshard_after_forward=false", chain_model(), world);
    EXPECT_EQ(kept.in_step.peak[STRATA_TAG_GATHERED], 4 * p);
    EXPECT_EQ(kept.sent_bytes * world, (world - 1) * 4 * 2 * p);

    // Never more slots than units that can use them.
    const Measured many = measure("fsdp:limit_all_gathers=64", chain_model(), world);
    EXPECT_EQ(many.in_step.peak[STRATA_TAG_GATHERED], 4 * (roots + 3 * largest));

    const Measured one = measure("fsdp:limit_all_gathers=1", chain_model(), world);
    EXPECT_EQ(one.in_step.peak[STRATA_TAG_GATHERED], 4 * (roots + largest));
  }
}

// c, r and a: bytes of an element in compute, reduce and accumulate dtype.
struct Sizes {
  ToyDtypes dtypes;
  uint64_t c, r, a;

  bool is_cast() const { return dtypes.reduce != dtypes.accumulate; }
};

constexpr int32_t kF32 = STRATA_DTYPE_F32;
constexpr int32_t kBF16 = STRATA_DTYPE_BF16;
constexpr int32_t kF16 = STRATA_DTYPE_F16;
const std::vector<Sizes>& all_sizes() {
  static const std::vector<Sizes> all = {{{kBF16, kF32, kF32}, 2, 4, 4},
                                         {{kF16, kF16, kF32}, 2, 2, 4},
                                         {{kBF16, kBF16, kBF16}, 2, 2, 2},
                                         {{kBF16, kF16, kBF16}, 2, 2, 2},
                                         {{kF32, kBF16, kF32}, 4, 2, 4}};
  return all;
}

TEST(Formulas, HoldForWholeParametersIn16Bits) {
  for (const Sizes& s : all_sizes()) {
    for (const uint32_t world : {2u, 3u}) {
      const ToyModel model = with_dtypes(chain_model(), s.dtypes);
      const std::vector<uint64_t> numels = chain_numels(world);
      uint64_t p = 0;
      for (const uint64_t numel : numels) p += numel;
      const uint64_t masters = s.c == 2 ? 4 * p : 0;
      const uint64_t largest = numels[4];  // of all, and a root
      const uint64_t slots =
          numels[0] + numels[4] + 2 * std::max({numels[1], numels[2], numels[3]});

      const Measured ddp = measure("ddp", model, world);
      EXPECT_EQ(ddp.at_rest.used[STRATA_TAG_PARAMETERS], s.c * p);
      EXPECT_EQ(ddp.at_rest.used[STRATA_TAG_GRADIENTS], s.a * p);
      EXPECT_EQ(ddp.at_rest.used[STRATA_TAG_OPTIMIZER], masters);
      // One bucket.
      EXPECT_EQ(ddp.in_step.peak[STRATA_TAG_STAGING], s.is_cast() ? s.r * p : 0);
      EXPECT_EQ(ddp.sent_bytes * world, (world - 1) * 2 * s.r * p);

      const Measured zero1 = measure("zero1", model, world);
      EXPECT_EQ(zero1.at_rest.used[STRATA_TAG_PARAMETERS], s.c * p);
      EXPECT_EQ(zero1.at_rest.used[STRATA_TAG_GRADIENTS], s.a * p);
      EXPECT_EQ(zero1.at_rest.used[STRATA_TAG_OPTIMIZER], masters / world);
      EXPECT_EQ(zero1.in_step.peak[STRATA_TAG_STAGING], s.is_cast() ? s.r * largest : 0);
      EXPECT_EQ(zero1.sent_bytes * world, (world - 1) * (s.r + s.c) * p);

      const Measured zero2 = measure("zero2", model, world);
      EXPECT_EQ(zero2.at_rest.used[STRATA_TAG_PARAMETERS], s.c * p);
      EXPECT_EQ(zero2.at_rest.used[STRATA_TAG_GRADIENTS], s.a * p / world);
      EXPECT_EQ(zero2.at_rest.used[STRATA_TAG_OPTIMIZER], masters / world);
      EXPECT_EQ(zero2.in_step.peak[STRATA_TAG_STAGING],
                s.a * slots + (s.is_cast() ? s.r * (largest + largest / world) : 0));
      EXPECT_EQ(zero2.sent_bytes * world, (world - 1) * (s.r + s.c) * p);
    }
  }
}

TEST(Formulas, HoldForFullShardingIn16Bits) {
  for (const Sizes& s : all_sizes()) {
    for (const uint32_t world : {2u, 3u}) {
      const std::vector<uint64_t> numels = chain_numels(world);
      uint64_t p = 0;
      for (const uint64_t numel : numels) p += numel;
      const uint64_t roots = numels[0] + numels[4];  // gathered once
      const uint64_t slots = roots + 2 * std::max({numels[1], numels[2], numels[3]});
      for (const char* strategy : {"fsdp", "zero3"}) {
        const Measured m = measure(strategy, with_dtypes(chain_model(), s.dtypes), world);
        EXPECT_EQ(m.at_rest.used[STRATA_TAG_PARAMETERS], s.c * p / world);
        EXPECT_EQ(m.at_rest.used[STRATA_TAG_GRADIENTS], s.a * p / world);
        EXPECT_EQ(m.at_rest.used[STRATA_TAG_OPTIMIZER], s.c == 2 ? 4 * p / world : 0);
        EXPECT_EQ(m.in_step.peak[STRATA_TAG_GATHERED], s.c * slots);
        EXPECT_EQ(m.in_step.peak[STRATA_TAG_STAGING],
                  s.a * slots + (s.is_cast() ? s.r * (numels[4] + numels[4] / world) : 0));
        EXPECT_EQ(m.sent_bytes * world, (world - 1) * (s.c * (2 * p - roots) + s.r * p));
      }
    }
  }
}

// Few units: two gradient slots would be one too many.
TEST(Formulas, HoldForFsdpWithOneUnitBetweenTheRoots) {
  ToyModel model = chain_model();
  model.units = {model.units[0], model.units[1], model.units[4]};
  model.order = {0, 1, 2};
  const uint64_t all = 512 + 256 + 896;  // 400; 192 + 5; 777, in multiples of 128
  const Measured m = measure("fsdp", model, 2);
  EXPECT_EQ(m.unit_numel, all);
  EXPECT_EQ(m.in_step.peak[STRATA_TAG_GATHERED], 4 * all);
  EXPECT_EQ(m.in_step.peak[STRATA_TAG_STAGING], 4 * all);
}

TEST(Formulas, CountWholeGradientsOnlyWhereMicroBatchesAreKept) {
  const ToyModel model = chain_model();
  ToyTraining training;
  training.world = 2;
  training.accumulation = 2;
  uint64_t p = 0;
  for (const uint64_t numel : chain_numels(2)) p += numel;
  for (const bool is_each : {false, true}) {
    training.reduces_each_batch = is_each;
    const auto reference = train_reference(model, training);
    const plugin::ResolvedStrategy resolved =
        find_strategy(is_each ? "fsdp:sync_each_batch=true" : "fsdp");
    run_ranks(2, [&](RankOfTest& rank) {
      ToyHost host(rank, resolved, model, training, reference);
      ASSERT_TRUE(host.attach().ok());
      ASSERT_TRUE(host.initialise().ok());
      EXPECT_EQ(rank.host->memory_stats().device.used[STRATA_TAG_GRADIENTS], 4 * p / 2);
      ASSERT_TRUE(host.step(0).ok());
      EXPECT_EQ(rank.host->memory_stats().device.used[STRATA_TAG_GRADIENTS],
                is_each ? 4 * p / 2 : 4 * p / 2 + 4 * p);
      EXPECT_TRUE(host.detach().ok());
    });
  }
}

}  // namespace
}  // namespace strata::tests
