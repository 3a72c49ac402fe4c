// Store, communication, log, trace, threads, and what makes a host refuse to start.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "strata/device/process_stats.h"
#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(DeviceStore, KeysAreBelowThePrefix) {
  HostConfig config;
  config.store = std::make_shared<InProcessStore>();
  config.store_prefix = "run/fsdp";
  const auto host = make_host(config);
  const auto& store = table<strata_host_store_1_t>(STRATA_HOST_STORE_1);
  const char value[] = {'a', '\0', 'b'};
  ASSERT_EQ(store.set(host->abi(), "id", value, 3), STRATA_OK);
  EXPECT_EQ(*config.store->get("run/fsdp/id", milliseconds(1)), std::string(value, 3));

  char got[2] = {'x', 'x'};
  uint64_t bytes = 2;
  ASSERT_EQ(store.get(host->abi(), "id", got, &bytes, 0), STRATA_OK);
  EXPECT_EQ(bytes, 3);  // its size, though only two fit
  EXPECT_EQ(got[0], 'a');
  EXPECT_EQ(got[1], '\0');

  int64_t result = 0;
  ASSERT_EQ(store.add(host->abi(), "n", 5, &result), STRATA_OK);
  ASSERT_EQ(store.add(host->abi(), "n", -2, &result), STRATA_OK);
  EXPECT_EQ(result, 3);
  EXPECT_EQ(store.get(host->abi(), nullptr, got, &bytes, 0), STRATA_E_INVALID_ARGUMENT);
}

TEST(DeviceStore, ATimeOutNamesKeyAndTime) {
  const auto host = make_host();
  uint64_t bytes = 0;
  const auto& store = table<strata_host_store_1_t>(STRATA_HOST_STORE_1);
  EXPECT_EQ(store.get(host->abi(), "missing", nullptr, &bytes, 30), STRATA_E_TIMEOUT);
  EXPECT_THAT(take_error().text, HasSubstr("'missing' was not set within 30 ms"));
}

TEST(DeviceStore, AKeyThatComesLaterIsFound) {
  const auto host = make_host();
  std::jthread setter([&] { EXPECT_TRUE(host->store_set("late", "v").ok()); });
  EXPECT_EQ(*host->store_get("late", std::chrono::seconds(20)), "v");
}

TEST(DeviceCommunication, TellsLibraryAndDeadlineAndCountsBytes) {
  HostConfig config;
  config.ccl_library = STRATA_CCL_DOUBLE;
  config.timeout = milliseconds(4321);
  const auto host = make_host(config);
  const auto& table_ = table<strata_host_communication_1_t>(STRATA_HOST_COMMUNICATION_1);
  EXPECT_STREQ(table_.library(host->abi()), STRATA_CCL_DOUBLE);
  EXPECT_EQ(table_.timeout_ms(host->abi()), 4321);
  table_.count_sent(host->abi(), 100);
  table_.count_sent(host->abi(), 20);
  EXPECT_EQ(host->take_sent_bytes(), 120);
  EXPECT_EQ(host->take_sent_bytes(), 0);
  table_.count_sent(host->abi(), 7);
  EXPECT_EQ(host->take_sent_bytes(), 7);
  EXPECT_EQ(host->sent_bytes(), 127);
}

TEST(DeviceErrors, TheSinkKeepsTheLastTextOfEachThread) {
  const auto& log = table<strata_host_log_1_t>(STRATA_HOST_LOG_1);
  log.fail(nullptr, STRATA_E_STATE, "first");
  log.fail(nullptr, STRATA_E_IO, "second");
  std::jthread([&] {
    EXPECT_EQ(take_error().text, "");
    log.fail(nullptr, STRATA_E_INTERNAL, "of another thread");
  }).join();
  const SinkText taken = take_error();
  EXPECT_EQ(taken.status, STRATA_E_IO);
  EXPECT_EQ(taken.text, "second");
  EXPECT_EQ(take_error().status, STRATA_OK);
  log.fail(nullptr, STRATA_E_IO, nullptr);
  EXPECT_EQ(take_error().text, "");
}

TEST(DeviceTables, AreFoundByIdAlone) {
  for (const char* id : {STRATA_HOST_MEMORY_1, STRATA_HOST_STREAMS_1, STRATA_HOST_KERNELS_1,
                         STRATA_HOST_STORE_1, STRATA_HOST_COMMUNICATION_1, STRATA_HOST_LOG_1,
                         STRATA_HOST_TRACE_1, STRATA_HOST_THREADS_1}) {
    const auto* found = static_cast<const uint32_t*>(Host::table(id));
    ASSERT_NE(found, nullptr) << id;
    const auto* slots = reinterpret_cast<void* const*>(found + 2);
    for (size_t i = 0; i < (found[0] - 8) / sizeof(void*); ++i) {
      EXPECT_NE(slots[i], nullptr) << id << " slot " << i;
    }
  }
  EXPECT_EQ(Host::table("strata.host.memory/2"), nullptr);
  EXPECT_EQ(Host::table(nullptr), nullptr);
}

class DeviceTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "strata-trace-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  nlohmann::json written(Host& host) {
    const std::string path = folder_ / "trace.json";
    const Status status = host.write_trace(path);
    EXPECT_TRUE(status.ok()) << status.message();
    std::ifstream file(path);
    return nlohmann::json::parse(file)["traceEvents"];
  }
  static std::vector<nlohmann::json> spans(const nlohmann::json& events) {
    std::vector<nlohmann::json> found;
    for (const auto& event : events) {
      if (event["ph"] == "X") found.push_back(event);
    }
    return found;
  }
  std::filesystem::path folder_;
};

TEST_F(DeviceTrace, SpansNestAndNamesAreCopied) {
  HostConfig config;
  config.world.rank = 1;
  config.world.size = 2;
  config.store = std::make_shared<InProcessStore>();
  config.ccl_library = STRATA_CCL_DOUBLE;
  const auto host = make_host(config);
  const auto& trace = table<strata_host_trace_1_t>(STRATA_HOST_TRACE_1);
  trace.begin(host->abi(), "off");
  trace.end(host->abi());
  host->enable_trace(true);
  trace.end(host->abi());  // of a span that was opened while it was off
  {
    std::string outer = "fsdp/before_forward \"all_gather\"";
    trace.begin(host->abi(), outer.c_str());
    trace.begin(host->abi(), "inner");
    trace.end(host->abi());
    trace.end(host->abi());
    outer.assign(outer.size(), 'z');
  }
  const auto found = spans(written(*host));
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0]["name"], "inner");
  EXPECT_EQ(found[1]["name"], "fsdp/before_forward \"all_gather\"");
  EXPECT_EQ(found[1]["pid"], 1);
  EXPECT_LE(found[1]["ts"].get<double>(), found[0]["ts"].get<double>());
  EXPECT_GE(found[1]["dur"].get<double>(), found[0]["dur"].get<double>());
}

TEST_F(DeviceTrace, ShowsTheWorkOfStreamsByTheirNames) {
  const auto host = make_host();
  host->enable_trace(true);
  const strata_stream_t side = *host->create_stream("gathers");
  const strata_event_t event = *host->create_event();
  ASSERT_EQ(enqueue(side, [] {}), STRATA_OK);
  ASSERT_TRUE(host->record(event, side).ok());
  ASSERT_TRUE(host->synchronize(event, "it").ok());
  const nlohmann::json events = written(*host);
  bool has_thread_name = false;
  for (const auto& entry : events) {
    has_thread_name |= entry["name"] == "thread_name" && entry["args"]["name"] == "gathers";
  }
  EXPECT_TRUE(has_thread_name);
  const auto found = spans(events);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [](const nlohmann::json& span) { return span["name"] == "gathers"; }));
}

TEST_F(DeviceTrace, KeepsTheLatestSpansOfManyThreads) {
  const auto host = make_host();
  host->enable_trace(true);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 70000; ++i) {
          host->trace_begin("span");
          host->trace_end();
        }
      });
    }
  }
  EXPECT_EQ(spans(written(*host)).size(), 2 * 65536);
  EXPECT_EQ(host->write_trace(folder_ / "no" / "such.json").code(), Code::kIo);
}

TEST(DeviceThreads, CoverEveryElementOnce) {
  HostConfig config;
  config.threads = 3;
  const auto host = make_host(config);
  const auto& threads = table<strata_host_threads_1_t>(STRATA_HOST_THREADS_1);
  for (const uint64_t count : {0, 1, 7, 1000, 12345}) {
    for (const uint64_t grain : {0, 1, 100, 100000}) {
      std::vector<std::atomic<int>> visits(count);
      ASSERT_EQ(threads.parallel_for(
                    host->abi(), count, grain,
                    [](void* argument, uint64_t begin, uint64_t end) {
                      auto& visited = *static_cast<std::vector<std::atomic<int>>*>(argument);
                      for (uint64_t i = begin; i < end; ++i) ++visited[i];
                    },
                    &visits),
                STRATA_OK);
      for (const auto& visit : visits) ASSERT_EQ(visit, 1);
    }
  }
  EXPECT_EQ(threads.parallel_for(host->abi(), 1, 1, nullptr, nullptr), STRATA_E_INVALID_ARGUMENT);
}

TEST(DeviceThreads, MayBeAskedFromManyThreadsAndFromWithin) {
  HostConfig config;
  config.threads = 2;
  const auto host = make_host(config);
  struct Shared {
    Host* host;
    std::atomic<uint64_t> sum{0};
  } shared{host.get()};
  const auto inner = [](void* argument, uint64_t begin, uint64_t end) {
    static_cast<Shared*>(argument)->sum += end - begin;
  };
  static constexpr auto kInner = +inner;
  const auto outer = [](void* argument, uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      EXPECT_TRUE(static_cast<Shared*>(argument)->host->parallel_for(50, 1, kInner, argument).ok());
    }
  };
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 3; ++c) {
      callers.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          EXPECT_TRUE(host->parallel_for(10, 1, outer, &shared).ok());
        }
      });
    }
  }
  EXPECT_EQ(shared.sum, 3 * 20 * 10 * 50);
}

TEST(DeviceHost, NamesWhatIsWrongWithItsConfiguration) {
  const auto refusal = [](auto change) {
    HostConfig config;
    change(config);
    const Result<std::unique_ptr<Host>> host = Host::create(config);
    EXPECT_FALSE(host.ok());
    return host.ok() ? Status() : host.status();
  };
  EXPECT_THAT(refusal([](HostConfig& c) { c.world.rank = 3; }).message(),
              HasSubstr("rank 3 of a world of 1"));
  EXPECT_THAT(refusal([](HostConfig& c) { c.world.size = 2; }).message(), HasSubstr("store"));
  EXPECT_THAT(refusal([](HostConfig& c) {
                c.world.size = 2;
                c.store = std::make_shared<InProcessStore>();
              }).message(),
              HasSubstr("communication library"));
  EXPECT_THAT(refusal([](HostConfig& c) { c.ccl_library = "libnccl.so.2"; }).message(),
              HasSubstr("'libnccl.so.2' is not an absolute path"));
  const Status missing = refusal([](HostConfig& c) { c.ccl_library = "/no/such/library.so"; });
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("/no/such/library.so"));
  EXPECT_THAT(refusal([](HostConfig& c) { c.threads = 0; }).message(), HasSubstr("0 threads"));
  EXPECT_THAT(refusal([](HostConfig& c) { c.timeout = milliseconds(0); }).message(),
              HasSubstr("timeout of 0 ms"));
  EXPECT_EQ(refusal([](HostConfig& c) {
              c.device = {STRATA_DEVICE_ROCM, 0};
            }).code(),
            Code::kUnsupported);
  EXPECT_THAT(refusal([](HostConfig& c) {
                c.device = {STRATA_DEVICE_CPU, 1};
              }).message(),
              HasSubstr("index 0"));
}

TEST(DeviceHost, TheClockRises) {
  const double before = monotonic_seconds();
  EXPECT_GE(monotonic_seconds(), before);
}

}  // namespace
}  // namespace strata::device
