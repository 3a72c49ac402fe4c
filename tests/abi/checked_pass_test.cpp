// The checked mode inside a micro-batch: one test per rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/abi/fake_strategy.h"

namespace strata::test {
namespace {

class CheckedPass : public CheckedFixture {
 protected:
  void SetUp() override { attached(); }
};

// ---- the plugin's answers ----

TEST_F(CheckedPass, NamesAnUnknownResidency) {
  ASSERT_EQ(before_forward(0), STRATA_OK);
  fake.answers.after_forward = 7;
  expect_plugin_fault(after_forward(0),
                      "after_forward(unit 'embed') returned residency 7. RULE: "
                      "STRATA_UNIT_KEPT or STRATA_UNIT_RELEASED");
}

TEST_F(CheckedPass, NamesAnUnknownResidencyBehindBackward) {
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK);
  fake.answers.after_backward = 0;
  expect_plugin_fault(after_backward(2), "after_backward(unit 'frozen') returned residency 0");
}

TEST_F(CheckedPass, NamesAReleaseInRecomputation) {
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK);
  ASSERT_EQ(after_backward(2), STRATA_OK);
  ASSERT_EQ(before_forward(1, STRATA_PHASE_RECOMPUTE), STRATA_OK) << host.take();
  expect_plugin_fault(after_forward(1, STRATA_PHASE_RECOMPUTE),
                      "released the unit in phase RECOMPUTE");
}

TEST_F(CheckedPass, AllowsRecomputationBeforeEachBackward) {
  forward();
  for (int u = 2; u >= 0; --u) {
    const auto unit = static_cast<uint32_t>(u);
    fake.answers.after_forward = STRATA_UNIT_KEPT;
    ASSERT_EQ(before_forward(unit, STRATA_PHASE_RECOMPUTE), STRATA_OK) << host.take();
    ASSERT_EQ(after_forward(unit, STRATA_PHASE_RECOMPUTE), STRATA_OK) << host.take();
    ASSERT_EQ(before_backward(unit), STRATA_OK) << host.take();
    if (u < 2) {
      ASSERT_EQ(gradient_target(unit), STRATA_OK) << host.take();
    }
    ASSERT_EQ(after_backward(unit), STRATA_OK) << host.take();
  }
  EXPECT_EQ(table->end_backward(self, 1), STRATA_OK) << host.take();
}

TEST_F(CheckedPass, NamesAViewOfTheWrongDtypeOrWithoutMemory) {
  fake.answers.view[0].dtype = STRATA_DTYPE_F16;
  expect_plugin_fault(before_forward(0), "answered a view of dtype 3, not 1");
}

TEST_F(CheckedPass, NamesAViewWithoutMemory) {
  fake.answers.view[0].data = nullptr;
  expect_plugin_fault(before_forward(0), "answered data NULL");
}

TEST_F(CheckedPass, NamesAKeptUnitThatMoves) {
  fake.answers.after_forward = STRATA_UNIT_KEPT;
  forward();
  fake.answers.view[2].data = fake.gradients[2].data();
  expect_plugin_fault(before_backward(2), "moved a unit that was kept");
}

TEST_F(CheckedPass, AllowsAReleasedUnitToComeBackElsewhere) {
  forward();
  fake.gradients[2] = fake.parameters[2];
  fake.answers.view[2].data = fake.gradients[2].data();
  EXPECT_EQ(before_backward(2), STRATA_OK) << host.take();
}

TEST_F(CheckedPass, NamesMemoryOfAUnitThatIsNotReleased) {
  fake.answers.after_forward = STRATA_UNIT_KEPT;
  ASSERT_EQ(before_forward(0), STRATA_OK);
  ASSERT_EQ(after_forward(0), STRATA_OK);
  fake.answers.view[1].data = fake.parameters[0].data();
  expect_plugin_fault(before_forward(1),
                      "answered memory that holds unit 'embed', which is not released");
}

TEST_F(CheckedPass, NamesOtherValuesInBackwardThanInForward) {
  forward();
  fake.parameters[2][77] = -1;  // released, the slot was used again, and nobody gathered
  expect_plugin_fault(before_backward(2), "handed out other values than before");
}

TEST_F(CheckedPass, NamesABadGradientTarget) {
  const std::vector<std::pair<std::function<void(strata_gradient_target_t&)>, std::string>> cases =
      {{[](auto& t) { t.dtype = STRATA_DTYPE_BF16; }, "answered dtype 2, not 1"},
       {[](auto& t) { t.mode = 3; }, "answered mode 3"},
       {[](auto& t) { t.mode = STRATA_GRADIENT_ADD; }, "in the first micro-batch"},
       {[](auto& t) { t.data = nullptr; }, "answered data NULL"},
       {[&](auto& t) { t.data = fake.gradients[1].data() + 4; }, "not a multiple of 64"},
       {[&](auto& t) { t.data = fake.parameters[1].data(); }, "memory that holds unit 'block.0'"}};
  for (const auto& [bend, text] : cases) {
    forward();
    ASSERT_EQ(before_backward(2), STRATA_OK) << host.take();
    ASSERT_EQ(after_backward(2), STRATA_OK) << host.take();
    ASSERT_EQ(before_backward(1), STRATA_OK) << host.take();
    const strata_gradient_target_t good = fake.answers.target[1];
    bend(fake.answers.target[1]);
    expect_plugin_fault(gradient_target(1), text);
    fake.answers.target[1] = good;
    table->destroy(std::exchange(self, nullptr));
    attached();
  }
}

TEST_F(CheckedPass, NamesATargetThatAnotherUnitHas) {
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK);
  ASSERT_EQ(before_backward(1), STRATA_OK) << host.take();
  ASSERT_EQ(gradient_target(1), STRATA_OK);
  ASSERT_EQ(before_backward(0), STRATA_OK) << host.take();
  fake.answers.target[0].data = fake.gradients[1].data();
  expect_plugin_fault(gradient_target(0), "answered the gradient target of unit 'block.0'");
}

TEST_F(CheckedPass, AllowsAddingInLaterMicroBatches) {
  sync = 0;
  forward();
  backward();
  ASSERT_EQ(table->end_backward(self, 0), STRATA_OK) << host.take();
  sync = 1;
  micro_batch = 1;
  for (auto& target : fake.answers.target) target.mode = STRATA_GRADIENT_ADD;
  forward();
  backward();
  EXPECT_EQ(table->end_backward(self, 1), STRATA_OK) << host.take();
}

TEST_F(CheckedPass, NamesAFailureWithoutTextAndEndsThere) {
  fake.answers.status = STRATA_E_TIMEOUT;
  expect_plugin_fault(before_forward(0), "returned status 4 and wrote no text");
  expect_host_fault(before_forward(0), "was called behind a failure");
}

// ---- the host's order ----

TEST_F(CheckedPass, NamesUnitsOutOfOrder) {
  ASSERT_EQ(before_forward(1), STRATA_OK);
  ASSERT_EQ(after_forward(1), STRATA_OK);
  expect_host_fault(before_forward(0), "before_forward(unit 'embed') of 'bent' is out of order");
}

TEST_F(CheckedPass, NamesAUnitThatIsEnteredTwice) {
  ASSERT_EQ(before_forward(0), STRATA_OK);
  expect_host_fault(before_forward(0), "enters a unit that is in use");
}

TEST_F(CheckedPass, NamesAnEndWithoutABeginning) {
  expect_host_fault(after_forward(0), "without before_forward");
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK);
  expect_host_fault(after_backward(1), "without before_backward");
  expect_host_fault(gradient_target(1), "without before_backward");
}

TEST_F(CheckedPass, NamesBackwardWithoutForward) {
  expect_host_fault(before_backward(2), "was called in state [between-steps]");
  ASSERT_EQ(before_forward(0), STRATA_OK);
  ASSERT_EQ(after_forward(0), STRATA_OK);
  expect_host_fault(before_backward(1), "whose forward is not done");
}

TEST_F(CheckedPass, NamesBackwardOutOfOrder) {
  forward();
  ASSERT_EQ(before_backward(1), STRATA_OK);
  expect_host_fault(before_backward(2), "is out of order");
}

TEST_F(CheckedFixture, NamesTheBackwardOfAFrozenUnitInFrontOfEverythingTrained) {
  freeze_first_unit();
  attached();
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK) << host.take();
  ASSERT_EQ(after_backward(2), STRATA_OK) << host.take();
  ASSERT_EQ(before_backward(1), STRATA_OK) << host.take();
  ASSERT_EQ(gradient_target(1), STRATA_OK) << host.take();
  ASSERT_EQ(after_backward(1), STRATA_OK) << host.take();
  expect_host_fault(before_backward(0), "such a unit has no backward");
  EXPECT_EQ(table->end_backward(self, 1), STRATA_OK) << "the unit needs none: " << host.take();
}

TEST_F(CheckedFixture, NamesAFrozenUnitBehindTrainedOnesThatHadNoBackward) {
  attached();
  forward();
  for (const uint32_t unit : {1U, 0U}) {
    ASSERT_EQ(before_backward(unit), STRATA_OK) << host.take();
    ASSERT_EQ(gradient_target(unit), STRATA_OK) << host.take();
    ASSERT_EQ(after_backward(unit), STRATA_OK) << host.take();
  }
  expect_host_fault(table->end_backward(self, 1), "end_backward(unit 'frozen')");
}

TEST_F(CheckedPass, NamesGradientTargetsThatAreTooMany) {
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK);
  expect_host_fault(gradient_target(2), "for a frozen unit");
  ASSERT_EQ(before_backward(1), STRATA_OK);
  ASSERT_EQ(gradient_target(1), STRATA_OK);
  expect_host_fault(gradient_target(1), "was called twice");
}

TEST_F(CheckedPass, NamesATrainableUnitWithoutGradientTarget) {
  forward();
  ASSERT_EQ(before_backward(1), STRATA_OK);
  expect_host_fault(after_backward(1), "without gradient_target");
}

TEST_F(CheckedPass, NamesAnEndBeforeAllUnitsAreDone) {
  forward();
  ASSERT_EQ(before_backward(2), STRATA_OK);
  ASSERT_EQ(after_backward(2), STRATA_OK);
  expect_host_fault(table->end_backward(self, 1), "before after_backward of this unit");
}

TEST_F(CheckedPass, NamesASyncThatTheContextsDidNotAnnounce) {
  forward();
  backward();
  expect_host_fault(table->end_backward(self, 0),
                    "has sync = 0, the contexts of this micro-batch had 1");
}

TEST_F(CheckedPass, NamesWrongPhases) {
  expect_host_fault(before_forward(0, STRATA_PHASE_BACKWARD), "has phase 3");
  expect_host_fault(before_forward(0, STRATA_PHASE_RECOMPUTE), "has phase 2 in state");
  ASSERT_EQ(before_forward(0), STRATA_OK);
  ASSERT_EQ(after_forward(0), STRATA_OK);
  expect_host_fault(before_forward(1, STRATA_PHASE_INFERENCE),
                    "changes between FORWARD and INFERENCE");
  expect_host_fault(table->end_backward(self, 1), "it belongs into [in-backward]");
}

TEST_F(CheckedPass, NamesBadContexts) {
  strata_unit_context_t bad = context(9, STRATA_PHASE_FORWARD);
  view.struct_size = sizeof(view);
  expect_host_fault(table->before_forward(self, &bad, &view), "names unit 9 of 3");
  bad = context(0, STRATA_PHASE_FORWARD);
  bad.next_unit = 9;
  expect_host_fault(table->before_forward(self, &bad, &view), "expects unit 9 of 3 next");
  bad = context(0, STRATA_PHASE_FORWARD);
  bad.struct_size = 8;
  expect_host_fault(table->before_forward(self, &bad, &view), "a context of 8 bytes");
  bad = context(0, STRATA_PHASE_FORWARD);
  bad.missing_count = 1;
  expect_host_fault(table->before_forward(self, &bad, &view), "missing parameters and no list");
}

}  // namespace
}  // namespace strata::test
