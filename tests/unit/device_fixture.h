// A host for tests, its tables, and a gate that holds a stream's work until the test opens it.
#ifndef STRATA_TESTS_UNIT_DEVICE_FIXTURE_H_
#define STRATA_TESTS_UNIT_DEVICE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "strata/device/host.h"

namespace strata::device {

inline std::unique_ptr<Host> make_host(const HostConfig& config = {}) {
  Result<std::unique_ptr<Host>> host = Host::create(config);
  STRATA_CHECK(host.ok()) << host.status().message();
  return std::move(host).value();
}

template <typename Table>
const Table& table(const char* id) {
  const auto* found = static_cast<const Table*>(Host::table(id));
  STRATA_CHECK(found != nullptr && found->struct_size == sizeof(Table)) << id;
  return *found;
}

inline const strata_host_memory_1_t& memory_table() {
  return table<strata_host_memory_1_t>(STRATA_HOST_MEMORY_1);
}
inline const strata_host_streams_1_t& streams_table() {
  return table<strata_host_streams_1_t>(STRATA_HOST_STREAMS_1);
}
inline const strata_host_kernels_1_t& kernels_table() {
  return table<strata_host_kernels_1_t>(STRATA_HOST_KERNELS_1);
}

// Queues a C++ function in a CPU stream, as a communication library does.
inline strata_status_t enqueue(strata_stream_t stream, std::function<void()> work) {
  auto* queue = static_cast<strata_cpu_queue_t*>(stream);
  auto* held = new std::function<void()>(std::move(work));
  const strata_status_t status = queue->enqueue(
      queue,
      [](void* argument) {
        const std::unique_ptr<std::function<void()>> owned(
            static_cast<std::function<void()>*>(argument));
        (*owned)();
      },
      held);
  if (status != STRATA_OK) delete held;
  return status;
}

// Work that waits in front of it goes on when the test opens it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return is_open_; });
  }
  void await_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return is_reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  bool is_reached_ = false;
};

}  // namespace strata::device

#endif  // STRATA_TESTS_UNIT_DEVICE_FIXTURE_H_
