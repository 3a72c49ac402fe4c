// sdk::Communicator over libstrata_ccl_cpu.so, with a host of the test's own.
#include <barrier>
#include <chrono>
#include <map>
#include <optional>

#include "strata/sdk/communicator.h"
#include "tests/world/ccl_fixture.h"

// One rank's host: what a communicator asks of it.
struct strata_host {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> values;
  };
  Shared* shared = nullptr;
  std::string library = strata::tests::ccl_library();
  uint64_t timeout_ms = 20'000;
  uint64_t counted_bytes = 0;
};

namespace strata::tests {
namespace {

using sdk::Communicator;
using sdk::Error;
using std::chrono::milliseconds;

strata_status_t store_set(strata_host_t* host, const char* key, const void* value, uint64_t bytes) {
  std::lock_guard lock(host->shared->mutex);
  host->shared->values[key] = std::string(static_cast<const char*>(value), bytes);
  host->shared->changed.notify_all();
  return STRATA_OK;
}

strata_status_t store_get(strata_host_t* host, const char* key, void* value, uint64_t* bytes,
                          uint64_t) {
  std::unique_lock lock(host->shared->mutex);
  const auto has_key = [&] { return host->shared->values.count(key) != 0; };
  if (!host->shared->changed.wait_for(lock, milliseconds(host->timeout_ms), has_key)) {
    return STRATA_E_TIMEOUT;
  }
  const std::string& found = host->shared->values[key];
  std::memcpy(value, found.data(), std::min<size_t>(*bytes, found.size()));
  *bytes = found.size();
  return STRATA_OK;
}

const strata_host_store_1_t kStore = {sizeof(strata_host_store_1_t), 0, store_set, store_get,
                                      nullptr};
const strata_host_communication_1_t kCommunication = {
    sizeof(strata_host_communication_1_t), 0,
    [](strata_host_t* host) { return host->library.c_str(); },
    [](strata_host_t* host) { return host->timeout_ms; },
    [](strata_host_t* host, uint64_t bytes) { host->counted_bytes += bytes; }};

struct HostRank {
  strata_host host;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<TestQueue> queue;
  strata_stream_t stream() { return queue->stream(); }
};

class SdkCommunicator : public ::testing::Test {
 protected:
  void SetUp() override {
    sdk::services().store = &kStore;
    sdk::services().communication = &kCommunication;
  }
  void TearDown() override { sdk::services() = {}; }

  void run(uint32_t size, const std::function<void(HostRank&)>& body,
           uint64_t timeout_ms = 20'000) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        HostRank mine;
        mine.host.shared = &shared_;
        mine.host.timeout_ms = timeout_ms;
        mine.queue = std::make_unique<TestQueue>(true);
        mine.communicator = Communicator::create(&mine.host, "fsdp/1", rank, size);
        body(mine);
        mine.queue->drain();
      });
    }
    for (std::thread& thread : threads) thread.join();
    shared_.values.clear();
  }

  strata_host::Shared shared_;
};

// What `body` throws as sdk::Error.
std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

TEST_F(SdkCommunicator, MeetsThroughTheStoreAndRunsEveryCollective) {
  run(3, [](HostRank& r) {
    Communicator& c = *r.communicator;
    EXPECT_EQ(c.size(), 3U);
    float all[3] = {};
    const float mine = static_cast<float>(c.rank() + 1);
    c.all_gather(&mine, all, 1, STRATA_DTYPE_F32, r.stream());
    float part = 0;
    c.reduce_scatter(all, &part, 1, STRATA_DTYPE_F32, r.stream());
    float least = mine;
    c.all_reduce(&mine, &least, 1, STRATA_DTYPE_F32, STRATA_REDUCE_MIN, r.stream());
    float from_last = 0;
    c.broadcast(&mine, &from_last, 1, STRATA_DTYPE_F32, 2, r.stream());
    r.queue->drain();
    c.check_async_error();
    EXPECT_EQ(all[2], 3);
    EXPECT_EQ(part, 3 * mine);
    EXPECT_EQ(least, 1);
    EXPECT_EQ(from_last, 3);
  });
}

TEST_F(SdkCommunicator, CountsSentBytesByTheFormulaAndTellsTheHost) {
  run(2, [](HostRank& r) {
    Communicator& c = *r.communicator;
    std::vector<uint16_t> a(1000), b(2000);
    c.all_gather(a.data(), b.data(), 1000, STRATA_DTYPE_BF16, r.stream());
    EXPECT_EQ(c.sent_bytes(), 2000U);
    c.reduce_scatter(b.data(), a.data(), 1000, STRATA_DTYPE_BF16, r.stream());
    EXPECT_EQ(c.sent_bytes(), 4000U);
    c.all_reduce(b.data(), b.data(), 2000, STRATA_DTYPE_BF16, STRATA_REDUCE_SUM, r.stream());
    EXPECT_EQ(c.sent_bytes(), 8000U);
    c.broadcast(b.data(), b.data(), 1000, STRATA_DTYPE_BF16, 0, r.stream());
    EXPECT_EQ(c.sent_bytes(), 9000U);
    EXPECT_EQ(r.host.counted_bytes, 9000U);
    r.queue->drain();
  });
}

TEST_F(SdkCommunicator, IssuesAGroupAsOne) {
  run(2, [](HostRank& r) {
    float a = 1;
    float b = 2;
    r.communicator->group_start();
    r.communicator->all_reduce(&a, &a, 1, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, r.stream());
    r.communicator->all_reduce(&b, &b, 1, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, r.stream());
    r.communicator->group_end();
    r.queue->drain();
    EXPECT_EQ(a, 2);
    EXPECT_EQ(b, 4);
  });
}

TEST_F(SdkCommunicator, SplitsIntoParts) {
  run(4, [](HostRank& r) {
    Communicator& c = *r.communicator;
    const auto part = c.split(static_cast<int>(c.rank() / 2), 0);
    EXPECT_EQ(part->size(), 2U);
    EXPECT_EQ(part->rank(), c.rank() % 2);
    int64_t sum = static_cast<int64_t>(c.rank());
    part->all_reduce(&sum, &sum, 1, STRATA_DTYPE_I64, STRATA_REDUCE_SUM, r.stream());
    r.queue->drain();
    EXPECT_EQ(sum, c.rank() < 2 ? 1 : 5);
    EXPECT_EQ(part->sent_bytes(), 8U);
    EXPECT_EQ(c.split(c.rank() == 0 ? -1 : 0, 0) == nullptr, c.rank() == 0);
  });
}

TEST_F(SdkCommunicator, ThrowsWhatWentWrongInACollective) {
  std::barrier over(2);
  run(
      2,
      [&](HostRank& r) {
        float number = 1;
        Communicator& c = *r.communicator;
        if (c.rank() == 0) {
          c.all_reduce(&number, &number, 1, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, r.stream());
          r.queue->drain();
          const auto error = error_of([&] { c.check_async_error(); });
          ASSERT_TRUE(error.has_value());
          EXPECT_EQ(error->code(), STRATA_E_TIMEOUT);
          EXPECT_NE(std::string(error->what()).find("of communicator 'fsdp/1'"), std::string::npos)
              << error->what();
          // Later ones are refused with the same reason.
          const auto again = error_of([&] {
            c.all_reduce(&number, &number, 1, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, r.stream());
          });
          ASSERT_TRUE(again.has_value());
          EXPECT_EQ(again->code(), STRATA_E_TIMEOUT);
          EXPECT_STREQ(again->what(), error->what());
          // An abort does not hide what came first.
          c.abort();
          const auto after = error_of([&] { c.check_async_error(); });
          ASSERT_TRUE(after.has_value());
          EXPECT_EQ(after->code(), STRATA_E_TIMEOUT);
        }
        over.arrive_and_wait();
      },
      150);
}

TEST_F(SdkCommunicator, AbortEndsABlockedCallOfItsOwnThread) {
  std::barrier over(2);
  run(2, [&](HostRank& r) {
    Communicator& c = *r.communicator;
    if (c.rank() == 0) {
      std::atomic<bool> is_calling{false};
      std::thread aborter([&] {
        while (!is_calling) std::this_thread::yield();
        std::this_thread::sleep_for(milliseconds(20));
        c.abort();
        c.abort();
      });
      const auto start = std::chrono::steady_clock::now();
      float number = 1;
      is_calling = true;
      // No queue: the collective runs, and waits, in this call.
      c.all_reduce(&number, &number, 1, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, nullptr);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
      aborter.join();
      const auto error = error_of([&] { c.check_async_error(); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), STRATA_E_ABORTED);
      EXPECT_STREQ(error->what(), "communicator 'fsdp/1' was aborted");
    }
    over.arrive_and_wait();
  });
}

TEST_F(SdkCommunicator, SaysWhyALibraryCannotBeUsed) {
  strata_host host;
  host.shared = &shared_;
  const auto error_with = [&](const std::string& library) {
    host.library = library;
    return error_of([&] { Communicator::create(&host, "x", 0, 1); });
  };
  const auto missing = error_with("/nowhere/libccl.so");
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->code(), STRATA_E_NOT_FOUND);
  EXPECT_NE(std::string(missing->what()).find("'/nowhere/libccl.so' does not load"),
            std::string::npos);
  const auto wrong = error_with("libm.so.6");
  ASSERT_TRUE(wrong.has_value());
  EXPECT_EQ(wrong->code(), STRATA_E_UNSUPPORTED);
  EXPECT_NE(std::string(wrong->what()).find("has no function ncclGetVersion"), std::string::npos)
      << wrong->what();
  EXPECT_EQ(error_with("")->code(), STRATA_E_UNSUPPORTED);
}

TEST_F(SdkCommunicator, SaysThatRankZeroDidNotCome) {
  strata_host host;
  host.shared = &shared_;
  host.timeout_ms = 50;
  const auto error = error_of([&] { Communicator::create(&host, "x", 1, 2); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), STRATA_E_TIMEOUT);
}

}  // namespace
}  // namespace strata::tests
