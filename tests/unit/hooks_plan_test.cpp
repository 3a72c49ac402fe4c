// Which events a pass has: arithmetic over the declared order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strata/hooks/pass_plan.h"
#include "strata/hooks/unit_events.h"

namespace strata::hooks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PassPlan plan_of(std::vector<int> order, std::vector<bool> is_recomputed,
                 std::vector<bool> is_trained = {}) {
  if (is_trained.empty()) is_trained.assign(is_recomputed.size(), true);
  return make_pass_plan(order, find_backward(order, is_trained), is_recomputed);
}

std::vector<std::string> backward_of(const PassPlan& plan) {
  std::vector<std::string> steps;
  for (const BackwardStep& step : plan.backward) {
    const char* name = step.kind == BackwardStep::Kind::kBeforeRecompute  ? "gather"
                       : step.kind == BackwardStep::Kind::kAfterRecompute ? "computed"
                       : step.kind == BackwardStep::Kind::kBeforeBackward ? "before"
                                                                          : "after";
    steps.push_back(std::string(name) + " " + std::to_string(step.unit) + ">" +
                    std::to_string(step.next_unit));
  }
  return steps;
}

TEST(PassPlan, WalksBackInReverseOrderWithOneUnitOpenAtATime) {
  const PassPlan plan = plan_of({0, 1, 2}, {false, false, false});
  EXPECT_THAT(backward_of(plan), ElementsAre("before 2>1", "after 2>1", "before 1>0", "after 1>0",
                                             "before 0>-1", "after 0>-1"));
}

TEST(PassPlan, KeepsATiedUnitOpenFromItsLastEntryToItsFirst) {
  const PassPlan plan = plan_of({0, 1, 2, 0}, {false, false, false});
  EXPECT_THAT(backward_of(plan), ElementsAre("before 0>2", "before 2>1", "after 2>1", "before 1>-1",
                                             "after 1>-1", "after 0>-1"));
  EXPECT_EQ(plan.entries[3].steps_until_output, 1u);
  EXPECT_EQ(plan.entries[2].steps_until_output, 2u);
  EXPECT_EQ(plan.entries[1].steps_until_output, 4u);
  EXPECT_EQ(plan.entries[0].steps_until_output, 5u);
}

TEST(PassPlan, HintsTheUnitThatForwardGathersNext) {
  const PassPlan plan = plan_of({0, 1, 2, 0}, {false, false, false});
  std::vector<int> next;
  for (const PassPlan::Entry& entry : plan.entries) next.push_back(entry.next_unit);
  EXPECT_THAT(next, ElementsAre(1, 2, kNoUnit, kNoUnit));
  EXPECT_TRUE(plan.entries[0].is_first && !plan.entries[0].is_last);
  EXPECT_TRUE(!plan.entries[3].is_first && plan.entries[3].is_last);
  EXPECT_TRUE(plan.entries[1].is_first && plan.entries[1].is_last);
}

TEST(PassPlan, RecomputesBeforeTheBackwardOfTheUnit) {
  const PassPlan plan = plan_of({0, 1}, {false, true});
  EXPECT_THAT(backward_of(plan), ElementsAre("gather 1>0", "computed 1>0", "before 1>0",
                                             "after 1>0", "before 0>-1", "after 0>-1"));
  EXPECT_EQ(plan.entries[1].steps_until_output, 1u);
  EXPECT_EQ(plan.entries[1].steps_until_gradients, 3u);
}

TEST(PassPlan, GathersATiedUnitOnceForAllItsRecomputations) {
  const PassPlan plan = plan_of({0, 1, 0}, {true, true});
  EXPECT_THAT(backward_of(plan),
              ElementsAre("gather 0>1", "computed 0>1", "before 0>1", "gather 1>-1",
                          "computed 1>-1", "before 1>-1", "after 1>-1", "after 0>-1"));
}

TEST(PassPlan, HasNoBackwardForAFrozenPrefix) {
  const PassPlan plan = plan_of({0, 1, 2, 3}, {true, false, false, false}, {false, false, true, false});
  EXPECT_THAT(backward_of(plan), ElementsAre("before 3>2", "after 3>2", "before 2>-1", "after 2>-1"));
  EXPECT_FALSE(plan.entries[0].has_backward || plan.entries[0].is_recomputed);
  EXPECT_TRUE(plan.entries[3].has_backward) << "gradients pass through it";
}

TEST(PassPlan, HasABackwardForAFrozenUnitThatIsEnteredAgainBehindATrainedOne) {
  const PassPlan plan = plan_of({0, 1, 0}, {false, false}, {false, true});
  EXPECT_THAT(backward_of(plan), ElementsAre("before 0>1", "before 1>-1", "after 1>-1", "after 0>-1"));
}

TEST(CheckOrder, RefusesOrdersThatCannotBeWalked) {
  const std::vector<std::string> names = {"embed", "block.0"};
  EXPECT_TRUE(check_order(std::vector<int>{0, 1, 0}, names).ok());
  EXPECT_THAT(check_order(std::vector<int>{}, names).message(), HasSubstr("no entry"));
  EXPECT_THAT(check_order(std::vector<int>{0}, names).message(), HasSubstr("'block.0' is not in"));
  EXPECT_THAT(check_order(std::vector<int>{0, 1, 2}, names).message(),
              HasSubstr("entry 2 of the declared order is unit 2, but the model has 2 units"));
  EXPECT_EQ(check_order(std::vector<int>{0, -1}, names).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::hooks
