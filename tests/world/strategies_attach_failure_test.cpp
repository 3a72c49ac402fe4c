// What goes wrong between create and the first step is told on every rank, in words.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "tests/world/strategies_failure.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

class AttachFailures : public StrategyFailures {};
INSTANTIATE_TEST_SUITE_P(Of, AttachFailures, failing_strategies(), name_of);

TEST_P(AttachFailures, NameTheFirstDifferenceBetweenModelsOnEveryRank) {
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

TEST_P(AttachFailures, SayWhenARankHasFewerUnitsOrAnotherOrder) {
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

TEST_P(AttachFailures, SayWhenRanksHaveOtherOptions) {
  const std::string name = resolved_.name;
  const std::string param = GetParam().strategy;
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

TEST_P(AttachFailures, EndAttachEverywhereWhenOneRankHasNoMemory) {
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

TEST_P(AttachFailures, EndAttachEverywhereWhenOneRankLaysUnitsOutWrongly) {
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

TEST_P(AttachFailures, RefuseDtypesThatTheyDoNotKnow) {
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

TEST_P(AttachFailures, NameTheRanksThatDoNotAttach) {
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

TEST_P(AttachFailures, ReturnFromABlockedAttachWithinASecondOfAbort) {
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

// ---- whole units ----

TEST_P(AttachFailures, RefuseASecondOpenUnit) {
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

TEST_P(AttachFailures, RefuseSmallReductionsThatAreNone) {
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

// ---- worlds ----

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
