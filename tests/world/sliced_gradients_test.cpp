// Gradients of a rank that updates slices: where they are written, what is kept, what arrives, and
// what lies between.
#include "strata/sdk/sliced_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <optional>
#include <set>

#include "strata/sdk/slices.h"
#include "tests/world/ranks.h"
#include "tests/world/toy_dtypes.h"
#include "tests/world/toy_model.h"

namespace strata::sdk {
namespace {

using ::testing::Each;
using tests::RankOfTest;
using tests::ToyDtypes;
using tests::ToyModel;

constexpr int32_t kF32 = STRATA_DTYPE_F32;
constexpr int32_t kBF16 = STRATA_DTYPE_BF16;

// Six units of 768 elements, a multiple of 64 x 1 to 4 ranks; the third one frozen: the first and
// the last are roots.
constexpr uint64_t kNumel = 768;
ToyModel six_units(const ToyDtypes& dtypes) {
  ToyModel model;
  for (uint32_t u = 0; u < 6; ++u) {
    const std::string name = "unit." + std::to_string(u);
    model.units.push_back({name, {{name + ".weight", kNumel, u != 2}}, dtypes});
    model.order.push_back(u);
  }
  return model;
}

// One rank's gradients under test, with what they need.
class RankWithGradients {
 public:
  RankWithGradients(RankOfTest& rank, const ToyModel& model, const MeshShape& shape, bool is_sliced,
                    bool each_batch)
      : host_(*rank.host), description_(model) {
    description_.lay_out(
        std::vector<strata_layout_t>(model.units.size(), sliced_layout(shape.world)));
    table_ = ModelTable(description_.model(), kAlignment * shape.world);
    strata_world_t world{};
    world.struct_size = sizeof(world);
    world.rank = static_cast<uint32_t>(rank.world.rank);
    world.size = shape.world;
    strata_create_args_t args{};
    args.struct_size = sizeof(args);
    args.world = &world;
    args.device = {STRATA_DEVICE_CPU, 0};
    args.host = host_.abi();
    group_.emplace(RankGroupConfig(args, "test", /*overlaps=*/true), abort_);
    mesh_ = ShardMesh(shape, *group_);
    gradients =
        SlicedGradients({host_.abi(), "test", is_sliced, each_batch}, table_, *group_, mesh_);
  }

  // Writes or adds `value` to all elements of the target, and hands it over.
  strata_gradient_target_t pass(uint32_t unit, uint32_t micro_batch, bool sync, float value) {
    strata_unit_context_t context{};
    context.struct_size = sizeof(context);
    context.unit = unit;
    context.micro_batch = micro_batch;
    context.sync = sync ? 1 : 0;
    const strata_gradient_target_t target = gradients.target(context);
    if (target.ready != nullptr) {
      EXPECT_TRUE(host_.wait(host_.compute_stream(), target.ready).ok());
    }
    std::vector<float> sum(kNumel, 0.0f);
    if (target.mode == STRATA_GRADIENT_ADD) sum = tests::load(target.data, 0, kNumel, target.dtype);
    for (float& element : sum) element += value;
    tests::store(target.data, 0, sum, target.dtype);
    gradients.after_backward(context);
    return target;
  }
  // What this rank's slice holds behind end_backward.
  std::vector<float> slice(uint32_t unit) {
    const UnitInfo& info = table_.unit(unit);
    return tests::load(gradients.slice(unit), 0, mesh_.shape().shard_numel(info.numel),
                       info.accumulate_dtype);
  }
  uint64_t used(int32_t tag) const { return host_.memory_stats().device.used[tag]; }
  uint64_t take_sent() { return host_.take_sent_bytes(); }
  const ModelTable& table() const { return table_; }

 private:
  device::Host& host_;
  tests::ToyDescription description_;
  ModelTable table_;
  AbortSwitch abort_;
  ShardMesh mesh_;

 public:
  SlicedGradients gradients;

 private:
  std::optional<RankGroup> group_;  // ends first
};

struct Case {
  MeshShape shape;
  ToyDtypes dtypes;
  bool is_sliced = true;
  bool each_batch = false;
};

void on_ranks(const Case& with,
              const std::function<void(RankWithGradients&, uint32_t rank)>& body) {
  strata_hello_t hello{};
  hello.get_table = &device::Host::table;
  ASSERT_EQ(services().fetch(&hello), nullptr);
  const ToyModel model = six_units(with.dtypes);
  std::barrier all_are_done(static_cast<std::ptrdiff_t>(with.shape.world));
  tests::run_ranks(static_cast<int>(with.shape.world), [&](RankOfTest& rank) {
    {
      RankWithGradients mine(rank, model, with.shape, with.is_sliced, with.each_batch);
      body(mine, static_cast<uint32_t>(rank.world.rank));
      all_are_done.arrive_and_wait();
    }
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
  });
}

constexpr MeshShape kTwo = {2, 2, true};

TEST(SlicedGradients, ArriveAsTheSumOfAllRanksInTheSlice) {
  const Case cases[] = {{kTwo, {}},
                        {kTwo, {kF32, kBF16, kF32}},
                        {kTwo, {kF32, kF32, kBF16}},
                        {kTwo, {}, false},
                        {kTwo, {kF32, kBF16, kF32}, false},
                        {{3, 1, true}, {kF32, kBF16, kF32}},
                        {{4, 2, true}, {kF32, kBF16, kF32}},
                        {{4, 2, false}, {}}};
  for (const Case& with : cases) {
    const uint32_t world = with.shape.world;
    // 1 + 2 + 4 + 8, so that a rank that is left out or counted twice shows.
    const auto sum = static_cast<float>((1u << world) - 1);
    on_ranks(with, [&](RankWithGradients& mine, uint32_t rank) {
      for (const uint32_t unit : {5u, 4u, 3u, 1u, 0u}) {
        mine.pass(unit, 0, true, static_cast<float>(1u << rank));
      }
      mine.gradients.end_backward(true);
      for (const uint32_t unit : {0u, 1u, 3u, 4u, 5u}) {
        EXPECT_THAT(mine.slice(unit), Each(sum)) << world << " ranks, unit " << unit;
        EXPECT_NE(mine.gradients.ready(unit), nullptr);
      }
      EXPECT_EQ(mine.gradients.slice(2), nullptr) << "it is frozen";
    });
  }
}

TEST(SlicedGradients, GoThroughTwoSlotsAndOneForEachRoot) {
  on_ranks({kTwo, {}}, [](RankWithGradients& mine, uint32_t) {
    EXPECT_EQ(mine.used(STRATA_TAG_GRADIENTS), 5 * 4 * kNumel / 2);
    EXPECT_EQ(mine.used(STRATA_TAG_STAGING), 4 * 4 * kNumel);
    std::set<void*> roots;
    std::set<void*> others;
    for (uint32_t step = 0; step < 3; ++step) {
      for (const uint32_t unit : {5u, 4u, 3u, 1u, 0u}) {
        const bool is_root = unit == 0 || unit == 5;
        (is_root ? roots : others).insert(mine.pass(unit, 0, true, 1).data);
      }
      mine.gradients.end_backward(true);
    }
    EXPECT_EQ(roots.size(), 2u);
    EXPECT_EQ(others.size(), 2u);
    EXPECT_EQ(mine.used(STRATA_TAG_STAGING), 4 * 4 * kNumel) << "nothing comes later";
  });
}

TEST(SlicedGradients, HaveAWireAndALandingOnlyWhereDtypesDiffer) {
  on_ranks({kTwo, {kF32, kBF16, kF32}}, [](RankWithGradients& mine, uint32_t) {
    EXPECT_EQ(mine.used(STRATA_TAG_STAGING), 4 * 4 * kNumel + 2 * kNumel + 2 * kNumel / 2);
  });
  on_ranks({kTwo, {kBF16, kBF16, kBF16}}, [](RankWithGradients& mine, uint32_t) {
    EXPECT_EQ(mine.used(STRATA_TAG_STAGING), 4 * 2 * kNumel);
    EXPECT_EQ(mine.used(STRATA_TAG_GRADIENTS), 5 * 2 * kNumel / 2);
  });
  on_ranks({kTwo, {kF32, kBF16, kF32}, false}, [](RankWithGradients& mine, uint32_t) {
    EXPECT_EQ(mine.used(STRATA_TAG_STAGING), 2 * kNumel);
    EXPECT_EQ(mine.used(STRATA_TAG_GRADIENTS), 5 * 4 * kNumel);
  });
}

TEST(SlicedGradients, AreKeptWithoutSyncAndSentOnce) {
  for (const bool is_sliced : {true, false}) {
    on_ranks({kTwo, {kF32, kBF16, kF32}, is_sliced}, [&](RankWithGradients& mine, uint32_t rank) {
      mine.take_sent();
      const auto value = static_cast<float>(rank + 1);
      const strata_gradient_target_t first = mine.pass(3, 0, false, value);
      const strata_gradient_target_t second = mine.pass(3, 1, false, value);
      EXPECT_EQ(first.mode, STRATA_GRADIENT_WRITE);
      EXPECT_EQ(second.mode, STRATA_GRADIENT_ADD);
      EXPECT_EQ(second.data, first.data);
      mine.gradients.end_backward(false);
      EXPECT_EQ(mine.take_sent(), 0u);
      mine.pass(3, 2, true, value);
      mine.gradients.end_backward(true);
      EXPECT_EQ(mine.take_sent(), 2 * kNumel / 2);
      EXPECT_THAT(mine.slice(3), Each(9.0f));
      // The next window knows nothing of it.
      EXPECT_EQ(mine.pass(3, 0, true, value).mode, STRATA_GRADIENT_WRITE);
      mine.gradients.end_backward(true);
      EXPECT_THAT(mine.slice(3), Each(3.0f));
    });
  }
}

TEST(SlicedGradients, AreSentAndAddedInEachBatchIfAsked) {
  for (const ToyDtypes dtypes : {ToyDtypes{}, ToyDtypes{kF32, kBF16, kF32}}) {
    on_ranks({kTwo, dtypes, true, true}, [&](RankWithGradients& mine, uint32_t rank) {
      mine.take_sent();
      for (uint32_t m = 0; m < 3; ++m) {
        const strata_gradient_target_t target =
            mine.pass(1, m, m == 2, static_cast<float>(rank + 1));
        EXPECT_EQ(target.mode, STRATA_GRADIENT_WRITE);
        mine.gradients.end_backward(m == 2);
      }
      EXPECT_THAT(mine.slice(1), Each(9.0f));
      EXPECT_EQ(mine.take_sent(), 3 * mine.table().unit(1).wire_bytes() / 2);
      EXPECT_EQ(mine.used(STRATA_TAG_GRADIENTS), 5 * 4 * kNumel / 2) << "no whole is kept";
    });
  }
}

TEST(SlicedGradients, OfOneRankAreWhereTheyWereWritten) {
  on_ranks({{1, 1, true}, {kF32, kBF16, kF32}}, [](RankWithGradients& mine, uint32_t) {
    const strata_gradient_target_t target = mine.pass(1, 0, true, 1.00390625f);  // not of bf16
    mine.gradients.end_backward(true);
    EXPECT_EQ(target.data, mine.gradients.slice(1));
    EXPECT_THAT(mine.slice(1), Each(1.00390625f)) << "nothing is sent, and so nothing is cast";
    EXPECT_EQ(mine.gradients.ready(1), nullptr);
    EXPECT_EQ(mine.used(STRATA_TAG_STAGING), 0u);
    EXPECT_EQ(mine.take_sent(), 0u);
  });
}

// 1 + 2^-9 has a bit more than bf16 has: it is lost on the wire, and nowhere else.
TEST(SlicedGradients, AreRoundedOnTheWireOnce) {
  on_ranks({kTwo, {kF32, kBF16, kF32}}, [](RankWithGradients& mine, uint32_t rank) {
    mine.pass(1, 0, true, rank == 0 ? 1.001953125f : 0.00390625f);
    mine.gradients.end_backward(true);
    EXPECT_THAT(mine.slice(1), Each(tests::rounded(1.0f + 0.00390625f, kBF16)));
  });
  on_ranks({kTwo, {}}, [](RankWithGradients& mine, uint32_t rank) {
    mine.pass(1, 0, true, rank == 0 ? 1.001953125f : 0.00390625f);
    mine.gradients.end_backward(true);
    EXPECT_THAT(mine.slice(1), Each(1.005859375f));
  });
}

}  // namespace
}  // namespace strata::sdk
