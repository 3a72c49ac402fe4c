// Streams and events on CPU: order, re-recording, deadlines, abort, the time stood still.
#include <pthread.h>

#include <array>
#include <thread>
#include <vector>

#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class DeviceStreams : public ::testing::Test {
 protected:
  void start(HostConfig config = {}) {
    host_ = make_host(config);
    side_ = *host_->create_stream("side");
    other_ = *host_->create_stream("other");
    event_ = *host_->create_event();
  }
  void TearDown() override {
    gate_.open();
    host_.reset();
  }
  // The side stream stands still until the gate opens; the event passes behind that.
  void block_side() {
    ASSERT_EQ(enqueue(side_, [this] { gate_.pass(); }), STRATA_OK);
    gate_.await_arrival();
    ASSERT_TRUE(host_->record(event_, side_).ok());
  }

  Gate gate_;
  std::unique_ptr<Host> host_;
  strata_stream_t side_ = nullptr;
  strata_stream_t other_ = nullptr;
  strata_event_t event_ = nullptr;
};

TEST_F(DeviceStreams, TheComputeStreamRunsWorkAtOnceInTheCallingThread) {
  start();
  std::thread::id ran_in;
  ASSERT_EQ(
      enqueue(streams_table().compute(host_->abi()), [&] { ran_in = std::this_thread::get_id(); }),
      STRATA_OK);
  EXPECT_EQ(ran_in, std::this_thread::get_id());
}

TEST_F(DeviceStreams, ASideStreamRunsInOrderInAThreadOfItsName) {
  start();
  std::vector<int> order;
  std::array<char, 16> name{};
  ASSERT_EQ(enqueue(side_, [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }),
            STRATA_OK);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(enqueue(side_, [&, i] { order.push_back(i); }), STRATA_OK);
  }
  ASSERT_TRUE(host_->record(event_, side_).ok());
  ASSERT_TRUE(host_->synchronize(event_, "five pieces of work").ok());
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_STREQ(name.data(), "side");
}

TEST_F(DeviceStreams, ANewEventCountsAsPassed) {
  start();
  int32_t passed = 0;
  EXPECT_EQ(streams_table().query(host_->abi(), event_, &passed), STRATA_OK);
  EXPECT_EQ(passed, 1);
  EXPECT_TRUE(host_->wait(host_->compute_stream(), event_).ok());
  EXPECT_TRUE(host_->synchronize(event_, "nothing").ok());
}

TEST_F(DeviceStreams, TheComputeStreamWaitsForASideStream) {
  start();
  block_side();
  EXPECT_FALSE(*host_->query(event_));
  int value = 0;
  ASSERT_EQ(enqueue(side_, [&] { value = 42; }), STRATA_OK);
  ASSERT_TRUE(host_->record(event_, side_).ok());
  std::jthread opener([this] { gate_.open(); });
  EXPECT_EQ(streams_table().wait(host_->abi(), host_->compute_stream(), event_), STRATA_OK);
  EXPECT_EQ(value, 42);
  EXPECT_TRUE(*host_->query(event_));
}

TEST_F(DeviceStreams, AWaitIsForTheRecordThatWasLatestWhenItWasQueued) {
  start();
  ASSERT_TRUE(host_->record(event_, other_).ok());
  ASSERT_TRUE(host_->wait(other_, event_).ok());  // on itself: in order anyway
  block_side();                                   // records the event anew, behind the gate
  const strata_event_t early = *host_->create_event();
  ASSERT_TRUE(host_->record(early, other_).ok());
  ASSERT_TRUE(host_->synchronize(early, "work before the second record").ok());
  ASSERT_TRUE(host_->wait(other_, event_).ok());
  ASSERT_TRUE(host_->record(early, other_).ok());
  EXPECT_FALSE(*host_->query(early));
  // Recording and destroying the event does not touch the wait that is queued.
  ASSERT_TRUE(host_->record(event_, host_->compute_stream()).ok());
  EXPECT_TRUE(*host_->query(event_));
  host_->destroy_event(event_);
  EXPECT_FALSE(*host_->query(early));
  gate_.open();
  EXPECT_TRUE(host_->synchronize(early, "the wait for the second record").ok());
}

TEST_F(DeviceStreams, ADeadlineNamesTheWaitAndWhereTheStreamStands) {
  start();
  block_side();
  EXPECT_EQ(
      streams_table().synchronize(host_->abi(), event_, 30, "the reduction of unit 'block.3'"),
      STRATA_E_TIMEOUT);
  const SinkText error = take_error();
  EXPECT_EQ(error.status, STRATA_E_TIMEOUT);
  EXPECT_THAT(error.text, HasSubstr(" ms for the reduction of unit 'block.3': stream 'side'"));
  EXPECT_THAT(error.text, HasSubstr("stream 'side' has done 0 of 1"));
  EXPECT_THAT(error.text, HasSubstr("HINT:"));
  gate_.open();
  EXPECT_TRUE(host_->synchronize(event_, "the same, later").ok());
}

TEST_F(DeviceStreams, TheHostsDeadlineHoldsForTheComputeStream) {
  HostConfig config;
  config.timeout = milliseconds(30);
  start(config);
  block_side();
  const Status status = host_->wait(host_->compute_stream(), event_);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("an event of stream 'side'"));
  EXPECT_GE(host_->wait_seconds(), 0.03);  // that is how long compute stood still
}

TEST_F(DeviceStreams, AFailedWaitInsideAStreamReachesWhoeverWaitsForThatStream) {
  HostConfig config;
  config.timeout = milliseconds(30);
  start(config);
  block_side();
  bool has_run = false;
  ASSERT_TRUE(host_->wait(other_, event_).ok());
  ASSERT_EQ(enqueue(other_, [&] { has_run = true; }), STRATA_OK);
  const strata_event_t behind = *host_->create_event();
  ASSERT_TRUE(host_->record(behind, other_).ok());
  const Status status = host_->synchronize(behind, "other", std::chrono::seconds(20));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("stream 'side', wanted by stream 'other'"));
  EXPECT_FALSE(host_->query(behind).ok());
  EXPECT_TRUE(has_run);  // work that was accepted runs, whatever happened: it may own something
}

TEST_F(DeviceStreams, AnAbortWakesEveryWaiterWithinASecond) {
  start();
  block_side();
  ASSERT_TRUE(host_->wait(other_, event_).ok());  // a wait inside a stream
  const strata_event_t behind = *host_->create_event();
  ASSERT_TRUE(host_->record(behind, other_).ok());
  std::array<Status, 4> ends;
  std::atomic<int> started{0};
  std::vector<std::jthread> waiters;
  const auto begin_waiter = [&](int index, auto wait) {
    waiters.emplace_back([&, index, wait] {
      ++started;
      ends[index] = wait();
    });
  };
  begin_waiter(0, [&] { return host_->synchronize(event_, "the side stream"); });
  begin_waiter(1, [&] { return host_->wait(host_->compute_stream(), event_); });
  begin_waiter(2, [&] { return host_->synchronize(behind, "the other stream"); });
  begin_waiter(3, [&] { return host_->store_get("never", milliseconds(0)).status(); });
  while (started < 4) std::this_thread::yield();

  const auto begin = Clock::now();
  host_->abort("rank 1 died");
  waiters.clear();  // joins
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), Code::kAborted);
    EXPECT_THAT(end.message(), HasSubstr("rank 1 died"));
  }
  EXPECT_THAT(ends[0].message(), HasSubstr("the side stream"));
  host_->abort("a later reason");
  EXPECT_THAT(host_->synchronize(event_, "x").message(), HasSubstr("rank 1 died"));
  EXPECT_TRUE(host_->is_aborted());
}

TEST_F(DeviceStreams, DestroyingAStreamWaitsForItsWork) {
  start();
  block_side();
  int done = 0;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(enqueue(side_, [&] { ++done; }), STRATA_OK);
  gate_.open();
  streams_table().destroy(host_->abi(), side_);
  EXPECT_EQ(done, 100);
  EXPECT_EQ(host_->record(event_, side_).code(), Code::kInvalidArgument);
}

TEST_F(DeviceStreams, DestroyingAStreamThatHangsEndsWithItsDeadline) {
  HostConfig config;
  config.timeout = milliseconds(30);
  // Outlives the host: the stream's thread goes on by itself.
  const auto gate = std::make_shared<Gate>();
  const auto has_ended = std::make_shared<Gate>();
  start(config);
  ASSERT_EQ(enqueue(side_,
                    [gate, has_ended] {
                      gate->pass();
                      has_ended->open();
                    }),
            STRATA_OK);
  const Status status = host_->destroy_stream(side_);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("the end of stream 'side'"));
  gate->open();
  has_ended->pass();
}

TEST_F(DeviceStreams, TheEndOfAHostWaitsForWorkBeforeItGivesMemoryBack) {
  start();
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  const Result<void*> left_over =
      host_->allocate({STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 0, kBytes, 0, "left over"});
  ASSERT_TRUE(left_over.ok());
  ASSERT_EQ(enqueue(side_, [this] { gate_.pass(); }), STRATA_OK);
  bool is_done = false;
  ASSERT_TRUE(host_->zero(side_, *left_over, kBytes).ok());
  ASSERT_EQ(enqueue(side_, [&] { is_done = true; }), STRATA_OK);
  gate_.await_arrival();
  std::jthread opener([this] { gate_.open(); });
  host_.reset();
  EXPECT_TRUE(is_done);
}

TEST_F(DeviceStreams, WithoutStreamThreadsWorkRunsWhereItIsQueued) {
  HostConfig config;
  config.use_stream_threads = false;
  start(config);
  std::thread::id ran_in;
  EXPECT_EQ(host_->wait_seconds(), 0);
  ASSERT_EQ(enqueue(side_, [&] { ran_in = std::this_thread::get_id(); }), STRATA_OK);
  EXPECT_EQ(ran_in, std::this_thread::get_id());
  EXPECT_GT(host_->take_wait_seconds(), 0);  // a collective that held the caller up
  EXPECT_EQ(host_->take_wait_seconds(), 0);
  ASSERT_TRUE(host_->record(event_, side_).ok());
  EXPECT_TRUE(*host_->query(event_));
  EXPECT_TRUE(host_->wait(host_->compute_stream(), event_).ok());
}

TEST_F(DeviceStreams, WorkOfAnInlineStreamMayQueueMoreInIt) {
  start();
  int depth = 0;
  const strata_stream_t compute = host_->compute_stream();
  ASSERT_EQ(enqueue(compute,
                    [&] {
                      ++depth;
                      EXPECT_EQ(enqueue(compute, [&] { ++depth; }), STRATA_OK);
                      // Not done as long as the outer work runs.
                      EXPECT_TRUE(host_->record(event_, compute).ok());
                      EXPECT_FALSE(*host_->query(event_));
                    }),
            STRATA_OK);
  EXPECT_EQ(depth, 2);
  EXPECT_TRUE(*host_->query(event_));
}

TEST_F(DeviceStreams, WorkThatThrowsFailsItsStreamInsteadOfTheProcess) {
  start();
  ASSERT_EQ(enqueue(side_, [] { throw std::runtime_error("a broken collective"); }), STRATA_OK);
  ASSERT_TRUE(host_->record(event_, side_).ok());
  const Status status = host_->synchronize(event_, "it");
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("stream 'side' threw: a broken collective"));
}

TEST_F(DeviceStreams, NameWhatIsNoStreamAndNoEvent) {
  start();
  int nothing = 0;
  EXPECT_THAT(host_->record(event_, &nothing).message(), HasSubstr("is not a stream"));
  EXPECT_THAT(host_->wait(side_, &nothing).message(), HasSubstr("is not an event"));
  EXPECT_EQ(streams_table().wait(host_->abi(), side_, nullptr), STRATA_E_INVALID_ARGUMENT);
  EXPECT_THAT(take_error().text, HasSubstr("is not an event"));
  EXPECT_EQ(host_->destroy_stream(host_->compute_stream()).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::device
