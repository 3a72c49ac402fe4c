// How communicators behave: groups, splits, order, counters, and every way to go wrong.
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "strata/abi/types.h"
#include "tests/world/ccl_fixture.h"

namespace strata::tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// One float, all-reduced.
nccl::Result add_up(CclRank& r, float* number, size_t count = 1) {
  return ccl().all_reduce(number, number, count, nccl::DataType::kFloat32, nccl::Op::kSum, r.comm,
                          r.stream);
}

TEST(CclWorld, ReturnsBeforeTheCollectiveIsDone) {
  std::barrier all_issued(2);
  run_ccl_ranks({2}, [&](CclRank& r) {
    float number = 1;
    // Rank 1 issues only after rank 0 has got through its call.
    if (r.rank == 1) all_issued.arrive_and_wait();
    ASSERT_EQ(add_up(r, &number), nccl::Result::kSuccess);
    if (r.rank == 0) all_issued.arrive_and_wait();
    r.queue->drain();
    EXPECT_EQ(number, 2);
  });
}

TEST(CclWorld, RunsInTheCallingThreadOnAQueueWithoutThreadAndOnNoQueue) {
  run_ccl_ranks({2, false}, [&](CclRank& r) {
    float number = 1;
    ASSERT_EQ(add_up(r, &number), nccl::Result::kSuccess);
    EXPECT_EQ(number, 2);
    r.stream = nullptr;
    ASSERT_EQ(add_up(r, &number), nccl::Result::kSuccess);
    EXPECT_EQ(number, 4);
  });
}

TEST(CclWorld, KeepsTheOrderOfIssueAcrossQueues) {
  run_ccl_ranks({2}, [&](CclRank& r) {
    TestQueue other(true);
    std::vector<float> numbers(200, 1.0F);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const nccl::Stream stream = (i * 7 + static_cast<size_t>(r.rank)) % 3 == 0 ? other.stream()
                                  : i % 2 == 0                                   ? r.stream
                                                                                 : nullptr;
      ccl().all_reduce(&numbers[i], &numbers[i], 1, nccl::DataType::kFloat32, nccl::Op::kSum,
                       r.comm, stream);
    }
    other.drain();
    r.queue->drain();
    EXPECT_EQ(r.async_error(), nccl::Result::kSuccess) << r.error_text();
    EXPECT_EQ(numbers, std::vector<float>(200, 2.0F));
  });
}

TEST(CclWorld, PutsCollectivesOffUntilTheGroupEnds) {
  run_ccl_ranks({2, false}, [&](CclRank& r) {
    float a = 1;
    float b = 2;
    ccl().group_start();
    ccl().group_start();
    ASSERT_EQ(add_up(r, &a), nccl::Result::kSuccess);
    ASSERT_EQ(add_up(r, &b), nccl::Result::kSuccess);
    ccl().group_end();
    EXPECT_EQ(a, 1);
    ASSERT_EQ(ccl().group_end(), nccl::Result::kSuccess);
    EXPECT_EQ(a, 2);
    EXPECT_EQ(b, 4);
    EXPECT_EQ(ccl().group_end(), nccl::Result::kInvalidUsage);
  });
}

TEST(CclWorld, SplitsByColorAndOrdersByKey) {
  run_ccl_ranks({4}, [&](CclRank& r) {
    nccl::Comm part = nullptr;
    // Even and odd ranks, in reverse.
    ASSERT_EQ(ccl().comm_split(r.comm, r.rank % 2, -r.rank, &part, nullptr), nccl::Result::kSuccess)
        << r.error_text();
    int rank = -1;
    int size = -1;
    ccl().comm_user_rank(part, &rank);
    ccl().comm_count(part, &size);
    EXPECT_EQ(rank, r.rank < 2 ? 1 : 0);
    EXPECT_EQ(size, 2);
    float number = static_cast<float>(r.rank + 1);
    ccl().all_reduce(&number, &number, 1, nccl::DataType::kFloat32, nccl::Op::kSum, part, r.stream);
    r.queue->drain();
    EXPECT_EQ(number, r.rank % 2 == 0 ? 1 + 3 : 2 + 4);
    ccl().comm_destroy(part);

    const int color = r.rank == 3 ? nccl::kSplitNoColor : 5;
    ASSERT_EQ(ccl().comm_split(r.comm, color, 0, &part, nullptr), nccl::Result::kSuccess);
    EXPECT_EQ(part == nullptr, r.rank == 3);
    ccl().comm_destroy(part);
    EXPECT_EQ(ccl().comm_split(r.comm, -7, 0, &part, nullptr), nccl::Result::kInvalidArgument);
  });
}

TEST(CclWorld, SplitsWhileCollectivesAreStillQueued) {
  run_ccl_ranks({2}, [&](CclRank& r) {
    std::vector<float> numbers(300'000, 1.0F);
    add_up(r, numbers.data(), numbers.size());
    nccl::Comm part = nullptr;
    ASSERT_EQ(ccl().comm_split(r.comm, 0, r.rank, &part, nullptr), nccl::Result::kSuccess);
    r.queue->drain();
    EXPECT_EQ(numbers, std::vector<float>(300'000, 2.0F));
    ccl().comm_destroy(part);
  });
}

TEST(CclWorld, CountsWhatCrosses) {
  for (const bool is_shared : {true, false}) {
    for (const int size : {1, 2, 4}) {
      std::atomic<uint64_t> broadcast_total{0};
      run_ccl_ranks({size}, [&](CclRank& r) {
        static const CclExtras extras = CclExtras::open();
        const auto n = static_cast<uint64_t>(size);
        const uint64_t count = 98'304;  // three chunks of staging for the largest message
        TestBuffer<float> send(is_shared, count * n);
        TestBuffer<float> receive(is_shared, count * n);
        uint64_t before = 0;
        const auto crossed = [&] {
          r.queue->drain();
          const uint64_t all = extras.sent_bytes(r.comm);
          return all - std::exchange(before, all);
        };
        ccl().all_reduce(send.data(), receive.data(), count, nccl::DataType::kFloat32,
                         nccl::Op::kSum, r.comm, r.stream);
        EXPECT_EQ(crossed(), 2 * (n - 1) * count * 4 / n);
        ccl().all_gather(send.data(), receive.data(), count, nccl::DataType::kFloat32, r.comm,
                         r.stream);
        EXPECT_EQ(crossed(), (n - 1) * count * 4);
        ccl().reduce_scatter(send.data(), receive.data(), count, nccl::DataType::kFloat32,
                             nccl::Op::kSum, r.comm, r.stream);
        EXPECT_EQ(crossed(), (n - 1) * count * 4);
        ccl().broadcast(send.data(), receive.data(), count, nccl::DataType::kFloat32, 0, r.comm,
                        r.stream);
        broadcast_total += crossed();
      });
      EXPECT_EQ(broadcast_total, (static_cast<uint64_t>(size) - 1) * 98'304 * 4);
    }
  }
}

TEST(CclWorld, PlaysASlowLinkWhenAsked) {
  const CclExtras extras = CclExtras::open();
  run_ccl_ranks({2}, [&](CclRank& r) {
    std::vector<float> numbers(25'000, 1.0F);
    extras.set_link(1'000'000);  // 100,000 bytes cross: 100 ms
    const auto start = steady_clock::now();
    add_up(r, numbers.data(), numbers.size());
    r.queue->drain();
    EXPECT_GE(steady_clock::now() - start, milliseconds(100));
    EXPECT_EQ(numbers[0], 2);
  });
  extras.set_link(0);
}

// ---- Going wrong
// ---------------------------------------------------------------------------------

TEST(CclFailure, NamesRanksThatCallDifferentCollectives) {
  run_ccl_ranks({3}, [&](CclRank& r) {
    float numbers[8] = {};
    const size_t count = r.rank == 1 ? 5 : 4;
    add_up(r, numbers, count);
    r.queue->drain();
    EXPECT_EQ(r.async_error(), nccl::Result::kInvalidArgument);
    EXPECT_NE(r.error_text().find("rank 0 all_reduce #1 (4 f32, sum), rank 1 all_reduce #1 (5 f32"),
              std::string::npos)
        << r.error_text();
  });
  run_ccl_ranks({2}, [&](CclRank& r) {
    float numbers[8] = {};
    if (r.rank == 0) {
      ccl().all_gather(numbers, numbers, 2, nccl::DataType::kFloat32, r.comm, r.stream);
    } else {
      add_up(r, numbers, 2);
    }
    r.queue->drain();
    EXPECT_NE(r.error_text().find("rank 0 all_gather #1 (2 f32), rank 1 all_reduce #1"),
              std::string::npos)
        << r.error_text();
  });
}

TEST(CclFailure, FailsAtOnceAfterAFailure) {
  run_ccl_ranks({2}, [&](CclRank& r) {
    float numbers[8] = {};
    add_up(r, numbers, r.rank == 0 ? 1 : 2);
    add_up(r, numbers, 1);  // already queued or refused, in either case over soon
    r.queue->drain();
    const std::string first = r.error_text();
    EXPECT_EQ(add_up(r, numbers, 1), nccl::Result::kInvalidArgument);
    EXPECT_EQ(r.error_text(), first);
    nccl::Comm part = nullptr;
    EXPECT_NE(ccl().comm_split(r.comm, 0, 0, &part, nullptr), nccl::Result::kSuccess);
  });
}

TEST(CclFailure, SaysWhoDidNotComeInTime) {
  CclWorld world;
  world.size = 3;
  world.timeout_ms = 200;
  world.name = "grads";
  std::barrier over(3);
  run_ccl_ranks(world, [&](CclRank& r) {
    float number = 1;
    if (r.rank != 1) {
      add_up(r, &number);
      r.queue->drain();
      EXPECT_EQ(r.async_error(), nccl::Result::kSystemError);
      EXPECT_NE(r.error_text().find("for rank 1 (pid "), std::string::npos) << r.error_text();
      EXPECT_NE(r.error_text().find("in all_reduce #1 (1 f32, sum) of communicator 'grads'"),
                std::string::npos)
          << r.error_text();
    }
    over.arrive_and_wait();
    // Too late: the others have given up, and this one learns why.
    if (r.rank == 1) {
      EXPECT_EQ(add_up(r, &number), nccl::Result::kSystemError);
      EXPECT_NE(r.error_text().find("reported by rank"), std::string::npos) << r.error_text();
    }
  });
}

TEST(CclFailure, SaysWhoDidNotJoinInTime) {
  nccl::UniqueId id;
  ASSERT_EQ(ccl().get_unique_id(&id), nccl::Result::kSuccess);
  ccl().strata_ccl_set_timeout(100);
  nccl::Comm comm = nullptr;
  EXPECT_EQ(ccl().comm_init_rank(&comm, 3, id, 1), nccl::Result::kSystemError);
  const std::string text = ccl().get_last_error(nullptr);
  EXPECT_NE(text.find("for rank 0 (not there yet), rank 2 (not there yet) in joining"),
            std::string::npos)
      << text;
  EXPECT_EQ(ccl().strata_ccl_error(nullptr, nullptr, 0), STRATA_E_TIMEOUT);
}

TEST(CclFailure, RefusesIdsThatAreUsedUpForeignOrShared) {
  nccl::UniqueId id;
  ASSERT_EQ(ccl().get_unique_id(&id), nccl::Result::kSuccess);
  nccl::Comm first = nullptr;
  ASSERT_EQ(ccl().comm_init_rank(&first, 1, id, 0), nccl::Result::kSuccess);
  nccl::Comm second = nullptr;
  EXPECT_NE(ccl().comm_init_rank(&second, 1, id, 0), nccl::Result::kSuccess);
  std::memset(&id, 0, sizeof(id));
  EXPECT_EQ(ccl().comm_init_rank(&second, 1, id, 0), nccl::Result::kInvalidArgument);
  EXPECT_EQ(ccl().comm_init_rank(&second, 0, id, 0), nccl::Result::kInvalidArgument);
  EXPECT_EQ(ccl().comm_init_rank(&second, 2, id, 2), nccl::Result::kInvalidArgument);
  ccl().comm_destroy(first);
}

TEST(CclFailure, AbortFromAnotherThreadEndsBlockedCollectivesEverywhere) {
  std::atomic<nccl::Comm> to_abort{nullptr};
  std::atomic<int> waiting{0};
  std::barrier over(3);
  std::thread aborter([&] {
    while (to_abort.load() == nullptr || waiting.load() < 2) std::this_thread::yield();
    ccl().comm_abort(to_abort.load());
  });
  steady_clock::time_point begin = steady_clock::now();
  run_ccl_ranks({3}, [&](CclRank& r) {
    std::vector<float> numbers(500'000, 1.0F);
    // Rank 2 never comes.
    if (r.rank != 2) {
      if (r.rank == 0) to_abort = r.comm;
      add_up(r, numbers.data(), numbers.size());
      ++waiting;
      r.queue->drain();
    }
    if (r.rank == 1) {
      EXPECT_EQ(r.async_error(), nccl::Result::kRemoteError);
      EXPECT_NE(r.error_text().find("rank 0 aborted communicator 'test'"), std::string::npos)
          << r.error_text();
    }
    over.arrive_and_wait();
  });
  aborter.join();
  EXPECT_LT(steady_clock::now() - begin, seconds(1));
}

TEST(CclFailure, NamesARankThatDestroyedItsCommunicator) {
  run_ccl_ranks({2}, [&](CclRank& r) {
    float number = 1;
    if (r.rank == 1) return;
    add_up(r, &number);
    r.queue->drain();
    EXPECT_EQ(r.async_error(), nccl::Result::kRemoteError);
    EXPECT_NE(r.error_text().find("has destroyed its communicator while rank 0"), std::string::npos)
        << r.error_text();
  });
}

TEST(CclFailure, FailsWhenTheQueueTakesNoMoreWork) {
  std::barrier all_joined(2);
  run_ccl_ranks({2}, [&](CclRank& r) {
    all_joined.arrive_and_wait();
    float number = 1;
    if (r.rank == 0) {
      r.queue->close();
      add_up(r, &number);
      EXPECT_NE(r.error_text().find("is shutting down"), std::string::npos) << r.error_text();
    } else {
      add_up(r, &number);
      r.queue->drain();
      EXPECT_NE(r.error_text().find("is shutting down"), std::string::npos) << r.error_text();
    }
  });
}

TEST(CclFailure, RefusesBadArgumentsWithoutTouchingTheCommunicator) {
  run_ccl_ranks({1}, [&](CclRank& r) {
    float number = 3;
    const auto reduce = [&](void* data, size_t count, uint32_t type, uint32_t op) {
      return ccl().all_reduce(data, data, count, static_cast<nccl::DataType>(type),
                              static_cast<nccl::Op>(op), r.comm, r.stream);
    };
    EXPECT_EQ(reduce(&number, 1, 7, 4), nccl::Result::kInvalidArgument);   // ncclAvg
    EXPECT_EQ(reduce(&number, 1, 10, 0), nccl::Result::kInvalidArgument);  // ncclFloat8e4m3
    EXPECT_EQ(reduce(nullptr, 1, 7, 0), nccl::Result::kInvalidArgument);
    EXPECT_EQ(reduce(&number, SIZE_MAX / 2, 7, 0), nccl::Result::kInvalidArgument);
    EXPECT_EQ(ccl().broadcast(&number, &number, 1, nccl::DataType::kFloat32, 1, r.comm, r.stream),
              nccl::Result::kInvalidArgument);
    EXPECT_EQ(reduce(&number, 1, 7, 0), nccl::Result::kSuccess);
    r.queue->drain();
    EXPECT_EQ(number, 3);
  });
}

TEST(CclFailure, RecognisesHandlesThatWereDestroyed) {
  nccl::UniqueId id;
  ccl().get_unique_id(&id);
  nccl::Comm comm = nullptr;
  ASSERT_EQ(ccl().comm_init_rank(&comm, 1, id, 0), nccl::Result::kSuccess);
  EXPECT_EQ(ccl().comm_destroy(comm), nccl::Result::kSuccess);
  float number = 1;
  EXPECT_EQ(ccl().all_reduce(&number, &number, 1, nccl::DataType::kFloat32, nccl::Op::kSum, comm,
                             nullptr),
            nccl::Result::kInvalidUsage);
  EXPECT_EQ(ccl().comm_destroy(comm), nccl::Result::kInvalidUsage);
  EXPECT_EQ(ccl().comm_abort(comm), nccl::Result::kInvalidUsage);
  int size = 0;
  EXPECT_EQ(ccl().comm_count(comm, &size), nccl::Result::kInvalidUsage);
}

}  // namespace
}  // namespace strata::tests
