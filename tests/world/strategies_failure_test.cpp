// What goes wrong on one rank is told on all, in words; nothing hangs and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/world/toy_host.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience(30);
// What "within one second" may take on a machine that runs other tests.
constexpr milliseconds kSecond(3000);

// Something that one thread waits for and another says.
class Signal {
 public:
  void give() {
    const std::lock_guard lock(mutex_);
    is_given_ = true;
    changed_.notify_all();
  }
  bool await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return is_given_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_given_ = false;
};

ToyTraining of_world(uint32_t world) {
  ToyTraining training;
  training.world = world;
  return training;
}

class StrategyFailures : public ::testing::TestWithParam<const char*> {
 protected:
  StrategyFailures()
      : model_(chain_model()),
        resolved_(find_strategy(GetParam())),
        reference_(train_reference(model_, training_)) {}

  std::unique_ptr<ToyHost> make_host(RankOfTest& rank, const ToyModel& model) {
    return std::make_unique<ToyHost>(rank, resolved_, model, training_, reference_);
  }
  std::unique_ptr<ToyHost> make_host(RankOfTest& rank) { return make_host(rank, model_); }

  // Trains a step, to see that all is well.
  void expect_works(ToyHost& host) {
    const auto run = [&]() -> Status {
      STRATA_RETURN_IF_ERROR(host.initialise());
      STRATA_RETURN_IF_ERROR(host.step(0));
      STRATA_RETURN_IF_ERROR(host.read_back(1));
      return host.detach();
    };
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  Signal is_over_;
  ToyTraining training_ = of_world(2);
  ToyModel model_;
  plugin::ResolvedStrategy resolved_;
  std::vector<Weights> reference_;
};

INSTANTIATE_TEST_SUITE_P(Of, StrategyFailures,
                         ::testing::Values("ddp", "fsdp", "fsdp:overlap_comm=false", "zero1",
                                           "zero2", "zero3", "hsdp:shard_group_size=1"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

// ---- attach ----

TEST_P(StrategyFailures, NameTheFirstDifferenceBetweenModelsOnEveryRank) {
  ToyModel other = model_;
  other.units[2].parameters[0].name = "block.1.bias";
  run_ranks(2, [&](RankOfTest& rank) {
    const auto host = make_host(rank, rank.world.rank == 1 ? other : model_);
    const Status status = host->attach();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("rank 1 has 'unit 'block.1'"), HasSubstr("block.1.bias[64]"),
                      HasSubstr("rank 0 has 'unit 'block.1'"), HasSubstr("block.1.weight0[64]"),
                      HasSubstr("HINT")));
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
    // Still created: the same instance takes the right model.
    const auto again = make_host(rank);
    const Status attached = again->attach();
    ASSERT_TRUE(attached.ok()) << attached.message();
    expect_works(*again);
  });
}

TEST_P(StrategyFailures, SayWhenARankHasFewerUnitsOrAnotherOrder) {
  ToyModel fewer = model_;
  fewer.units.pop_back();
  fewer.order.pop_back();
  ToyModel swapped = model_;
  std::swap(swapped.order[1], swapped.order[2]);
  for (const ToyModel& other : {fewer, swapped}) {
    run_ranks(2, [&](RankOfTest& rank) {
      const auto host = make_host(rank, rank.world.rank == 0 ? other : model_);
      const Status status = host->attach();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
      EXPECT_THAT(status.message(), HasSubstr("different models or options"));
    });
  }
}

TEST_P(StrategyFailures, SayWhenRanksHaveOtherOptions) {
  const std::string name = resolved_.name;
  const std::string param = GetParam();
  std::string option = "limit_all_gathers=7";
  std::string said = "limit_all_gathers 7";
  if (name == "ddp") {
    option = "bucket_cap_mb=7,overlap_comm=true";
    said = "bucket_cap_mb 7340032 bytes";
  } else if (name == "zero1" || name == "zero2") {
    option = "overlap_comm=false";
    said = "overlap_comm false";
  }
  const bool has_options = param.find(':') != std::string::npos;
  const plugin::ResolvedStrategy other = find_strategy(param + (has_options ? "," : ":") + option);
  run_ranks(2, [&](RankOfTest& rank) {
    ToyHost host(rank, rank.world.rank == 1 ? other : resolved_, model_, training_, reference_);
    const Status status = host.attach();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("option "));
    EXPECT_THAT(status.message(), HasSubstr(said));
  });
}

TEST_P(StrategyFailures, EndAttachEverywhereWhenOneRankHasNoMemory) {
  run_ranks(3, [&](RankOfTest& rank) {
    if (rank.world.rank == 1) {
      device::HostConfig config = rank.host->config();
      config.device_limit = 34 << 10;  // the small reductions and a bit
      auto limited = device::Host::create(config);
      ASSERT_TRUE(limited.ok());
      rank.host = std::move(limited).value();
    }
    const auto host = make_host(rank);
    const Clock::time_point begin = Clock::now();
    const Status status = host->attach();
    EXPECT_EQ(status.code(), Code::kOutOfMemory) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(rank.world.rank == 1 ? "limit" : "rank 1 failed"));
    EXPECT_LT(Clock::now() - begin, seconds(10)) << "nobody waits for the rank that failed";
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
  });
}

TEST_P(StrategyFailures, EndAttachEverywhereWhenOneRankLaysUnitsOutWrongly) {
  run_ranks(2, [&](RankOfTest& rank) {
    const auto host = make_host(rank);
    ASSERT_TRUE(host->create().ok());
    strata_layout_t layout{sizeof(strata_layout_t), 0, 64, rank.world.rank == 1 ? 64u : 128u};
    host->description().lay_out(std::vector<strata_layout_t>(model_.units.size(), layout));
    const Status status = host->strategy().attach(host->description().model());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("elements, not a multiple of 128"));
  });
}

TEST_P(StrategyFailures, RefuseDtypesThatTheyDoNotKnow) {
  run_ranks(2, [&](RankOfTest& rank) {
    const auto host = make_host(rank);
    ASSERT_TRUE(host->create().ok());
    for (uint32_t u = 0; u < model_.units.size(); ++u) {
      host->description().unit(u).compute_dtype = STRATA_DTYPE_F64;
    }
    const Status status = host->attach();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("unit 'embeddings' computes in dtype 4"), HasSubstr("HINT")));
  });
}

TEST_P(StrategyFailures, NameTheRanksThatDoNotAttach) {
  run_ranks(
      3,
      [&](RankOfTest& rank) {
        if (rank.world.rank == 1) return;
        const auto host = make_host(rank);
        const Status status = host->attach();
        EXPECT_EQ(status.code(), Code::kTimeout);
        EXPECT_THAT(status.message(), HasSubstr("for rank 1 to attach"));
        EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
      },
      milliseconds(400));
}

// ---- whole units ----

TEST_P(StrategyFailures, RefuseASecondOpenUnit) {
  run_ranks(2, [&](RankOfTest& rank) {
    ToyHost host(rank, resolved_, model_, training_, reference_, /*is_checked=*/false);
    ASSERT_TRUE(host.attach().ok());
    strata_unit_view_t view{};
    view.struct_size = sizeof(view);
    ASSERT_TRUE(host.strategy().open_unit(1, STRATA_INTENT_WRITE, &view).ok());
    const Status second = host.strategy().open_unit(2, STRATA_INTENT_READ, &view);
    EXPECT_EQ(second.code(), Code::kState);
    EXPECT_THAT(second.message(), HasSubstr("unit 'block.0' is still open"));
    EXPECT_EQ(host.strategy().close_unit(2).code(), Code::kState);
    EXPECT_TRUE(host.strategy().close_unit(1).ok());
    EXPECT_EQ(host.strategy().close_unit(1).code(), Code::kState);
    EXPECT_EQ(host.strategy().open_unit(5, STRATA_INTENT_READ, &view).code(),
              Code::kInvalidArgument);
    expect_works(host);
  });
}

TEST_P(StrategyFailures, RefuseSmallReductionsThatAreNone) {
  run_ranks(2, [&](RankOfTest& rank) {
    ToyHost host(rank, resolved_, model_, training_, reference_, /*is_checked=*/false);
    ASSERT_TRUE(host.attach().ok());
    double value = rank.world.rank + 1;
    const strata_small_reduction_t right{sizeof(right), STRATA_DTYPE_F64, STRATA_REDUCE_SUM, 1,
                                         &value};
    for (int wrong = 0; wrong < 4; ++wrong) {
      strata_small_reduction_t reduction = right;
      if (wrong == 0) reduction.dtype = STRATA_DTYPE_F32;
      if (wrong == 1) reduction.op = 7;
      if (wrong == 2) reduction.count = 4097;
      if (wrong == 3) reduction.values = nullptr;
      EXPECT_EQ(host.strategy().all_reduce_small(reduction).code(), Code::kInvalidArgument);
    }
    ASSERT_TRUE(host.strategy().all_reduce_small(right).ok());
    EXPECT_EQ(value, 3.0);
    expect_works(host);
  });
}

// ---- abort ----

TEST_P(StrategyFailures, ReturnFromABlockedStepWithinASecondOfAbort) {
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

TEST_P(StrategyFailures, ReturnFromABlockedAttachWithinASecondOfAbort) {
  run_ranks(2, [&](RankOfTest& rank) {
    if (rank.world.rank == 1) return;  // never attaches
    const auto host = make_host(rank);
    ASSERT_TRUE(host->create().ok());
    Clock::time_point aborted;
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(100));
      aborted = Clock::now();
      host->strategy().abort("the test says so");
    });
    const Status status = host->attach();
    const Clock::time_point returned = Clock::now();
    other.join();
    EXPECT_EQ(status.code(), Code::kAborted) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("the test says so"));
    EXPECT_LT(returned - aborted, kSecond);
    EXPECT_EQ(rank.host->memory_stats().used_total, 0u);
  });
}

TEST_P(StrategyFailures, StayAborted) {
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

TEST_P(StrategyFailures, SayInAStepThatAPeerIsGone) {
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

TEST_P(StrategyFailures, NameThePeerThatDoesNotComeInTime) {
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
TEST_P(StrategyFailures, EndInTheMiddleOfAStep) {
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
TEST_P(StrategyFailures, EndCollectivesThatAreUnderWayWhenTheyAreDestroyed) {
  if (std::string(GetParam()).find("overlap_comm=false") != std::string::npos) {
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

TEST(Hsdp, RefusesGroupsThatDoNotDivideTheWorld) {
  const ToyModel model = chain_model();
  const ToyTraining training = of_world(4);
  const auto reference = train_reference(model, training);
  const plugin::ResolvedStrategy resolved = find_strategy("hsdp:shard_group_size=3");
  run_ranks(4, [&](RankOfTest& rank) {
    ToyHost host(rank, resolved, model, training, reference);
    const Status status = host.create();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("shard_group_size = 3 does not divide"),
                                        HasSubstr("world of 4 ranks"), HasSubstr("HINT")));
  });
}

TEST(Single, RefusesASecondRank) {
  const ToyModel model = chain_model();
  const ToyTraining training = of_world(2);
  const auto reference = train_reference(model, training);
  const plugin::ResolvedStrategy resolved = find_strategy("single");
  run_ranks(2, [&](RankOfTest& rank) {
    ToyHost host(rank, resolved, model, training, reference);
    const Status status = host.create();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("a world of 2 ranks"));
  });
}

}  // namespace
}  // namespace strata::tests
