// Ranks as threads of one process: one host a rank, one store for all.
#ifndef STRATA_TESTS_RANKS_H_
#define STRATA_TESTS_RANKS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/store.h"
#include "strata/device/host.h"
#include "strata/plugin/registry.h"
#include "strata/plugin/strategy_instance.h"

namespace strata::tests {

class TestErrorSink final : public plugin::ErrorSink {
 public:
  std::string take() override { return device::take_error().text; }
};

inline plugin::HostOffer test_offer() {
  static TestErrorSink sink;
  return {&device::Host::table, &sink};
}

// "fsdp:limit_all_gathers=1" from the plugins of this build. Any thread.
inline plugin::ResolvedStrategy find_strategy(const std::string& text) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static plugin::PluginRegistry registry(test_offer(), {{STRATA_PLUGIN_DIR, "this build"}});
  const auto request = plugin::parse_strategy_request(text);
  EXPECT_TRUE(request.ok()) << request.status().message();
  auto found = registry.find(*request);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return std::move(found).value();
}

struct RankOfTest {
  World world;
  std::shared_ptr<Store> store;
  std::unique_ptr<device::Host> host;
};

// Runs `body` once a rank, each in a thread of its own, and joins them.
inline void run_ranks(int size, const std::function<void(RankOfTest&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const auto store = std::make_shared<InProcessStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RankOfTest mine;
      mine.world = {rank, size, rank, size, 0, 1};
      mine.store = store;
      device::HostConfig config;
      config.world = mine.world;
      config.store = store;
      config.timeout = timeout;
      if (size > 1) config.ccl_library = std::string(STRATA_LIBRARY_DIR) + "/libstrata_ccl_cpu.so";
      auto host = device::Host::create(config);
      ASSERT_TRUE(host.ok()) << host.status().message();
      mine.host = std::move(host).value();
      body(mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace strata::tests

#endif  // STRATA_TESTS_RANKS_H_
