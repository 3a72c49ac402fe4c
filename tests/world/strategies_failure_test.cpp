// What goes wrong in a step is told in words; nothing hangs and nothing is left behind.
#include "tests/world/strategies_failure.h"

#include <gmock/gmock.h>

#include <barrier>
#include <chrono>
#include <thread>

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class StepFailures : public StrategyFailures {};
INSTANTIATE_TEST_SUITE_P(Of, StepFailures, failing_strategies(), name_of);

// ---- abort ----

TEST_P(StepFailures, ReturnFromABlockedStepWithinASecondOfAbort) {
  run_ranks(2, [&](RankOfTest& rank) {
    const auto host = make_host(rank);
    ASSERT_TRUE(host->attach().ok());
    ASSERT_TRUE(host->initialise().ok());
    host->expect_failure();
    if (rank.world.rank == 1) {  // does not come to the step
      static_cast<void>(is_over_.await());
      return;
    }
    Clock::time_point aborted;
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(200));  // so that rank 0 is likely to be blocked
      aborted = Clock::now();
      host->strategy().abort("the test says so");
    });
    const Status status = host->step(0);
    const Clock::time_point returned = Clock::now();
    other.join();
    EXPECT_EQ(status.code(), Code::kAborted) << status.message();
    EXPECT_LT(returned - aborted, kSecond);
    host->destroy();
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
    is_over_.give();
  });
}

TEST_P(StepFailures, StayAborted) {
  std::barrier all_attached(2);
  run_ranks(2, [&](RankOfTest& rank) {
    ToyHost host(rank, resolved_, model_, training_, reference_, /*is_checked=*/false);
    const Status attached = host.attach();
    all_attached.arrive_and_wait();
    ASSERT_TRUE(attached.ok()) << attached.message();
    host.strategy().abort("first");
    host.strategy().abort("second");
    double value = 1;
    const strata_small_reduction_t sum{sizeof(sum), STRATA_DTYPE_F64, STRATA_REDUCE_SUM, 1, &value};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(host.strategy().all_reduce_small(sum).code(), Code::kAborted);
    }
    strata_unit_view_t view{};
    view.struct_size = sizeof(view);
    EXPECT_EQ(host.strategy().open_unit(0, STRATA_INTENT_READ, &view).code(), Code::kAborted);
    EXPECT_EQ(host.strategy().quiesce().code(), Code::kAborted);
  });
}

// ---- a rank that leaves ----

TEST_P(StepFailures, SayInAStepThatAPeerIsGone) {
  run_ranks(2, [&](RankOfTest& rank) {
    const auto host = make_host(rank);
    ASSERT_TRUE(host->attach().ok());
    ASSERT_TRUE(host->initialise().ok());
    host->expect_failure();
    if (rank.world.rank == 1) return host->destroy();
    const Clock::time_point begin = Clock::now();
    const Status status = host->step(0);
    EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
    EXPECT_LT(Clock::now() - begin, kSecond);
    host->destroy();
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
  });
}

TEST_P(StepFailures, NameThePeerThatDoesNotComeInTime) {
  run_ranks(
      2,
      [&](RankOfTest& rank) {
        const auto host = make_host(rank);
        ASSERT_TRUE(host->attach().ok());
        ASSERT_TRUE(host->initialise().ok());
        host->expect_failure();
        if (rank.world.rank == 1) {
          static_cast<void>(is_over_.await());
          return;
        }
        const Status status = host->step(0);
        EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
        host->destroy();
        EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
        is_over_.give();
      },
      milliseconds(700));
}

// Destroying in the middle of a step ends what is running and frees nothing under it.
TEST_P(StepFailures, EndInTheMiddleOfAStep) {
  std::barrier step_is_over(2);
  run_ranks(2, [&](RankOfTest& rank) {
    const auto host = make_host(rank);
    ASSERT_TRUE(host->attach().ok());
    ASSERT_TRUE(host->initialise().ok());
    host->expect_failure();
    const Status stepped = host->step(0);
    // What after_step began is over on both.
    const Status idle = stepped.ok() ? host->strategy().quiesce() : stepped;
    step_is_over.arrive_and_wait();
    ASSERT_TRUE(idle.ok()) << idle.message();
    if (rank.world.rank == 0) {
      // A forward of one rank: its gathers wait for the other, or have failed by now.
      std::thread other([&] {
        std::this_thread::sleep_for(milliseconds(50));
        host->strategy().abort("the rank gives up");
      });
      static_cast<void>(host->micro_batch(1, 0, {}));
      other.join();
    }
    const Clock::time_point begin = Clock::now();
    host->destroy();
    EXPECT_LT(Clock::now() - begin, kSecond);
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
  });
}

// Nobody called abort(), and the other rank never comes.
TEST_P(StepFailures, EndCollectivesThatAreUnderWayWhenTheyAreDestroyed) {
  if (std::string(GetParam().strategy).find("overlap_comm=false") != std::string::npos) {
    GTEST_SKIP() << "collectives on the compute stream of the CPU block the call that queues them";
  }
  std::barrier all_are_ready(2);
  run_ranks(2, [&](RankOfTest& rank) {
    // Unchecked: the checked mode waits for what it is handed.
    const auto host = std::make_unique<ToyHost>(rank, resolved_, model_, training_, reference_,
                                                /*is_checked=*/false);
    const Status attached = host->attach();
    const Status initialised = attached.ok() ? host->initialise() : attached;
    all_are_ready.arrive_and_wait();
    ASSERT_TRUE(initialised.ok()) << initialised.message();
    if (rank.world.rank == 1) {
      static_cast<void>(is_over_.await());
      return;
    }
    strata_unit_context_t context{};
    context.struct_size = sizeof(context);
    context.phase = STRATA_PHASE_FORWARD;
    context.next_unit = 1;
    context.sync = 1;
    context.compute = rank.host->compute_stream();
    strata_unit_view_t view{};
    view.struct_size = sizeof(view);
    if (resolved_.name == "fsdp" || resolved_.name == "zero3") {  // a gather
      ASSERT_TRUE(host->strategy().before_forward(context, &view).ok());
    } else {  // a reduction
      ASSERT_TRUE(host->forward(STRATA_PHASE_FORWARD, 0, 0, {}).ok());
      if (resolved_.name == "zero2") {
        // One unit alone: a third one would wait for a slot, and so for the other rank.
        context.phase = STRATA_PHASE_BACKWARD;
        context.unit = model_.order.back();
        context.next_unit = STRATA_NONE;
        strata_gradient_target_t target{};
        target.struct_size = sizeof(target);
        int32_t residency = 0;
        ASSERT_TRUE(host->strategy().before_backward(context, &view).ok());
        ASSERT_TRUE(host->strategy().gradient_target(context, &target).ok());
        ASSERT_TRUE(host->strategy().after_backward(context, &residency).ok());
      } else {
        ASSERT_TRUE(host->backward(0, 0, {}).ok());
      }
    }
    const Clock::time_point begin = Clock::now();
    host->destroy();
    EXPECT_LT(Clock::now() - begin, kSecond);
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
    is_over_.give();
  });
}

// ---- fsdp alone ----

// A forward without backward never comes to end_backward, and must not compute with what is not
// there.
TEST(FsdpFailures, AreToldInAForwardWithoutBackward) {
  const ToyModel model = chain_model();
  const ToyTraining training = of_world(2);
  const auto reference = train_reference(model, training);
  for (const char* strategy : {"fsdp", "fsdp:reshard_after_forward=false"}) {
    const plugin::ResolvedStrategy resolved = find_strategy(strategy);
    run_ranks(2, [&](RankOfTest& rank) {
      // Unchecked: the checked mode would see the wrong weights.
      ToyHost host(rank, resolved, model, training, reference, false);
      ASSERT_TRUE(host.attach().ok());
      ASSERT_TRUE(host.initialise().ok());
      if (rank.world.rank == 1) return host.destroy();
      strata_unit_context_t context{};
      context.struct_size = sizeof(context);
      context.phase = STRATA_PHASE_INFERENCE;
      context.next_unit = STRATA_NONE;
      context.compute = rank.host->compute_stream();
      strata_unit_view_t view{};
      view.struct_size = sizeof(view);
      int32_t residency = 0;
      Status status = host.strategy().before_forward(context, &view);
      if (status.ok()) status = rank.host->wait(context.compute, view.ready);
      if (status.ok()) status = host.strategy().after_forward(context, &residency);
      EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
    });
  }
}

// limit_all_gathers=1 is too few when a unit begins before the last one ends.
TEST(FsdpFailures, SayWhichLimitIsTooSmall) {
  const ToyModel model = chain_model();
  const ToyTraining training = of_world(2);
  const auto reference = train_reference(model, training);
  const plugin::ResolvedStrategy resolved = find_strategy("fsdp:limit_all_gathers=1");
  run_ranks(2, [&](RankOfTest& rank) {
    ToyHost host(rank, resolved, model, training, reference);
    ASSERT_TRUE(host.attach().ok());
    ASSERT_TRUE(host.initialise().ok());
    strata_unit_context_t context{};
    context.struct_size = sizeof(context);
    context.phase = STRATA_PHASE_FORWARD;
    context.next_unit = STRATA_NONE;
    context.sync = 1;
    context.compute = rank.host->compute_stream();
    strata_unit_view_t view{};
    view.struct_size = sizeof(view);
    for (const uint32_t unit : {0u, 1u}) {
      context.unit = unit;
      ASSERT_TRUE(host.strategy().before_forward(context, &view).ok());
      ASSERT_TRUE(rank.host->wait(context.compute, view.ready).ok());
    }
    context.unit = 2;
    const Status status = host.strategy().before_forward(context, &view);
    EXPECT_EQ(status.code(), Code::kState);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("unit 'block.1' finds no free slot"),
                                        HasSubstr("limit_all_gathers = 1"), HasSubstr("HINT")));
  });
}

}  // namespace
}  // namespace strata::tests
