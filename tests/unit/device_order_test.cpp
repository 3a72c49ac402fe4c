// Random graphs of work over streams and events give what the same work gives one by one.
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

constexpr int kOperations = 1000;
constexpr int kCells = 12;

struct Operation {
  size_t stream;
  int to;
  int from;
  int delay;
};

std::vector<Operation> random_graph(uint32_t seed, size_t streams) {
  std::mt19937 random(seed);
  std::vector<Operation> operations;
  for (int i = 0; i < kOperations; ++i) {
    operations.push_back({random() % streams, static_cast<int>(random() % kCells),
                          static_cast<int>(random() % kCells), static_cast<int>(random() % 400)});
  }
  return operations;
}

void apply(std::vector<uint64_t>& cells, const Operation& operation, int index) {
  volatile int spin = operation.delay;
  while (spin > 0) spin = spin - 1;
  cells[operation.to] =
      cells[operation.to] * 31 + cells[operation.from] * 7 + static_cast<uint64_t>(index);
}

// Queues each operation in its stream, behind the streams that touched its cells last; few events,
// recorded again and again.
std::vector<uint64_t> run_on_streams(Host& host, const std::vector<strata_stream_t>& streams,
                                     const std::vector<Operation>& operations) {
  std::vector<uint64_t> cells(kCells, 1);
  std::vector<int> last_stream(kCells, -1);
  std::vector<strata_event_t> events;
  for (int i = 0; i < 3; ++i) events.push_back(*host.create_event());
  size_t next_event = 0;
  for (int index = 0; index < kOperations; ++index) {
    const Operation& operation = operations[index];
    for (const int cell : {operation.to, operation.from}) {
      const int last = last_stream[cell];
      last_stream[cell] = static_cast<int>(operation.stream);
      if (last < 0 || last == static_cast<int>(operation.stream)) continue;
      const strata_event_t event = events[next_event++ % events.size()];
      EXPECT_TRUE(host.record(event, streams[last]).ok());
      EXPECT_TRUE(host.wait(streams[operation.stream], event).ok());
    }
    EXPECT_EQ(enqueue(streams[operation.stream],
                      [&cells, &operation, index] { apply(cells, operation, index); }),
              STRATA_OK);
  }
  for (const strata_stream_t stream : streams) {
    EXPECT_TRUE(host.record(events[0], stream).ok());
    EXPECT_TRUE(host.synchronize(events[0], "the graph").ok());
  }
  for (const strata_event_t event : events) host.destroy_event(event);
  return cells;
}

void expect_same_as_sequential(uint32_t seed, bool use_stream_threads, bool with_compute) {
  HostConfig config;
  config.use_stream_threads = use_stream_threads;
  config.timeout = std::chrono::seconds(30);
  const auto host = make_host(config);
  std::vector<strata_stream_t> streams = {*host->create_stream("a"), *host->create_stream("b")};
  streams.push_back(with_compute ? host->compute_stream() : *host->create_stream("c"));
  const std::vector<Operation> operations = random_graph(seed, streams.size());
  std::vector<uint64_t> expected(kCells, 1);
  for (int i = 0; i < kOperations; ++i) apply(expected, operations[i], i);
  EXPECT_EQ(run_on_streams(*host, streams, operations), expected) << "seed " << seed;
}

TEST(DeviceOrder, RandomGraphsOverThreeSideStreamsEqualTheSequentialRun) {
  for (uint32_t seed = 1; seed <= 5; ++seed) expect_same_as_sequential(seed, true, false);
}

TEST(DeviceOrder, RandomGraphsWithTheComputeStreamEqualTheSequentialRun) {
  for (uint32_t seed = 11; seed <= 15; ++seed) expect_same_as_sequential(seed, true, true);
}

TEST(DeviceOrder, RandomGraphsWithoutStreamThreadsEqualTheSequentialRun) {
  expect_same_as_sequential(21, false, true);
}

TEST(DeviceOrder, SeveralThreadsMayQueueInOneStream) {
  const auto host = make_host();
  const strata_stream_t side = *host->create_stream("side");
  const strata_event_t event = *host->create_event();
  int count = 0;         // of the side stream alone
  int inline_count = 0;  // of the compute stream alone
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          EXPECT_EQ(enqueue(side, [&] { ++count; }), STRATA_OK);
          EXPECT_EQ(enqueue(host->compute_stream(), [&] { ++inline_count; }), STRATA_OK);
        }
      });
    }
  }
  ASSERT_TRUE(host->record(event, side).ok());
  ASSERT_TRUE(host->synchronize(event, "3000 pieces of work").ok());
  EXPECT_EQ(count, 3000);
  EXPECT_EQ(inline_count, 3000);
}

TEST(DeviceOrder, HostsOfOneProcessDoNotMeet) {
  const auto first = make_host();
  const auto second = make_host();
  const strata_stream_t side = *first->create_stream("side");
  const strata_event_t event = *second->create_event();
  EXPECT_EQ(second->record(event, side).code(), Code::kInvalidArgument);
  first->abort("only this one");
  EXPECT_FALSE(second->is_aborted());
  EXPECT_TRUE(second->synchronize(event, "x").ok());
}

}  // namespace
}  // namespace strata::device
