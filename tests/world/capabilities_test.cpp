// describe() is the only judge of what a strategy can do: what it admits trains with the right
// numbers, what it does not is refused before anything runs, in words.
#include "strata/plugin/capabilities.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "strata/train/rank.h"
#include "tests/world/ranks.h"
#include "tests/world/search_draw.h"
#include "tests/world/tasks.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

strata_capabilities_t described(const std::string& strategy) {
  const plugin::ResolvedStrategy resolved = find_strategy(strategy);
  const auto capabilities = resolved.library->describe(resolved.name);
  EXPECT_TRUE(capabilities.ok()) << capabilities.status().message();
  return *capabilities;
}

// One way to ask for much or little of a strategy.
plugin::StrategyNeeds needs_of(uint32_t mask, int world) {
  plugin::StrategyNeeds needs;
  needs.world_size = static_cast<uint32_t>(world);
  needs.accumulates = (mask & 1) != 0;
  needs.has_tied_units = (mask & 2) != 0;
  needs.has_frozen_parameters = (mask & 4) != 0;
  needs.may_miss_gradients = (mask & 8) != 0;
  needs.recomputes = (mask & 16) != 0;
  needs.infers = (mask & 32) != 0;
  needs.needs_equal_replicas = (mask & 64) != 0;
  return needs;
}
constexpr uint32_t kMasks = 128;

std::string text_of(const plugin::StrategyNeeds& needs) {
  std::string out = fmt::format("world {}", needs.world_size);
  if (needs.accumulates) out += ", accumulation";
  if (needs.has_tied_units) out += ", tied";
  if (needs.has_frozen_parameters) out += ", frozen";
  if (needs.may_miss_gradients) out += ", unused";
  if (needs.recomputes) out += ", checkpointing";
  if (needs.infers) out += ", inference";
  return out;
}

// A small training that has exactly what is needed.
Task task_of(const plugin::StrategyNeeds& needs) {
  OddShape shape;
  shape.units = {{{{7}}, {{3, 3}}}, {{{65}}, {{}}}, {{{2, 11}}}};
  shape.order = {0, 1, 2};
  if (needs.has_tied_units) shape.order = {0, 1, 0, 2, 0};
  if (needs.has_frozen_parameters) {
    shape.units[1][0].is_trainable = false;
    shape.units.push_back({{{5}, false}});
    shape.order.insert(shape.order.begin(), 3);
  }
  if (needs.may_miss_gradients) {
    shape.units[2].push_back({{9}, true, Use::kNever});
    shape.units[1].push_back({{4}, true, Use::kSometimes});
  }
  const int accumulation = needs.accumulates ? 2 : 1;
  Task task = odd_task(shape, {static_cast<int>(needs.world_size), accumulation});
  task.windows.assign(2, accumulation);
  return task;
}

void expect_trains(const std::string& strategy, const plugin::StrategyNeeds& needs,
                   const Trained& expected) {
  Placement placement;
  placement.strategy = strategy;
  placement.world = static_cast<int>(needs.world_size);
  placement.recomputes = needs.recomputes;
  placement.infers = needs.infers;
  placement.is_checked = true;
  const Trained trained = train_on_ranks(task_of(needs), placement);
  expect_same_bits(trained, expected, strategy);
}

void expect_refusal(const Status& refused, const std::string& strategy) {
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("'" + strategy + "' cannot do this run"), HasSubstr("HINT")));
}

TEST(Capabilities, ThatAreAdmittedTrainAndTheOthersAreRefusedInWords) {
  const std::vector<Searched> strategies = searched_strategies();
  ASSERT_FALSE(strategies.empty());
  int refusals = 0;
  for (const int world : {1, 2}) {
    for (uint32_t mask = 0; mask < kMasks; ++mask) {
      const plugin::StrategyNeeds needs = needs_of(mask, world);
      SCOPED_TRACE(text_of(needs));
      const Trained expected =
          train_in_one_process(task_of(needs), world, {.adds_each_entry = needs.recomputes});
      for (const Searched& strategy : strategies) {
        const Status status =
            plugin::check_capabilities(strategy.name, described(strategy.name), needs);
        if (status.ok()) {
          expect_trains(strategy.name, needs, expected);
        } else {
          expect_refusal(status, strategy.name);
          ++refusals;
        }
      }
    }
  }
  EXPECT_GT(refusals, 0) << "'single' trains on two ranks?";
}

TEST(Capabilities, OfDtypesAndDevicesThatAreAdmittedTrainAndTheOthersAreRefusedInWords) {
  const std::vector<int32_t> dtypes = {STRATA_DTYPE_F32, STRATA_DTYPE_BF16, STRATA_DTYPE_F16,
                                       STRATA_DTYPE_F64};
  for (const Searched& strategy : searched_strategies()) {
    const int world = described(strategy.name).max_world == 1 ? 1 : 2;
    for (const int32_t device : {STRATA_DEVICE_CPU, STRATA_DEVICE_CUDA, STRATA_DEVICE_ROCM}) {
      for (const int32_t compute : dtypes) {
        for (const int32_t reduce : dtypes) {
          plugin::StrategyNeeds needs = needs_of(0, world);
          needs.device = device;
          needs.compute_dtype = compute;
          needs.reduce_dtype = reduce;
          SCOPED_TRACE(fmt::format("{}: device {}, compute {}, reduce {}", strategy.name, device,
                                   compute, reduce));
          const Status status =
              plugin::check_capabilities(strategy.name, described(strategy.name), needs);
          if (!status.ok()) {
            expect_refusal(status, strategy.name);
            continue;
          }
          if (device != STRATA_DEVICE_CPU) continue;  // tests/gpu has the others
          Task task = task_of(needs);
          task.dtypes = [=](int) { return model::UnitDtypes{compute, reduce}; };
          const Placement placement{.strategy = strategy.name, .world = world, .is_checked = true};
          expect_same_bits(train_on_ranks(task, placement), train_in_one_process(task, world),
                           "beside one process");
        }
      }
    }
  }
}

// The way of every command: found, described, refused before a host or a communicator is made.
TEST(Capabilities, AreAskedBeforeAnythingRuns) {
  config::PlacementConfig placement;
  placement.plugin_path = {STRATA_PLUGIN_DIR};
  placement.strategy = "single";
  const auto refused = train::resolve_strategy(placement, needs_of(0, 2));
  ASSERT_FALSE(refused.ok());
  expect_refusal(refused.status(), "single");
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("2 ranks are asked for"),
                                                HasSubstr("at most 1"), HasSubstr("--devices 1")));
  EXPECT_TRUE(train::resolve_strategy(placement, needs_of(kMasks - 1, 1)).ok());
}

}  // namespace
}  // namespace strata::tests
