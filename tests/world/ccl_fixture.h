// Ranks that use libstrata_ccl_cpu.so, as threads: a queue, buffers of both kinds, one body a rank.
#ifndef STRATA_TESTS_WORLD_CCL_FIXTURE_H_
#define STRATA_TESTS_WORLD_CCL_FIXTURE_H_

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/ccl_cpu/exports.h"
#include "strata/sdk/nccl_api.h"

namespace strata::tests {

namespace nccl = sdk::nccl;

inline std::string ccl_library() {
  return std::string(STRATA_LIBRARY_DIR) + "/libstrata_ccl_cpu.so";
}

// What the library exports besides NCCL's functions.
struct CclExtras {
  decltype(&strataCclSetTimeout) set_timeout;
  decltype(&strataCclSetLink) set_link;
  decltype(&strataCclSentBytes) sent_bytes;
  decltype(&strataCclError) error;
  static CclExtras open();
};

inline const nccl::Api& ccl() {
  static const nccl::Api& api = nccl::Api::open(ccl_library());
  return api;
}

// An in-order queue with a thread, or without one: then work runs where it is queued.
class TestQueue : public strata_cpu_queue_t {
 public:
  explicit TestQueue(bool has_thread) : strata_cpu_queue_t{&TestQueue::push} {
    if (has_thread) thread_ = std::thread([this] { loop(); });
  }
  ~TestQueue() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  nccl::Stream stream() { return static_cast<strata_cpu_queue_t*>(this); }
  // Work is refused from now on.
  void close() { is_closed_ = true; }
  // Returns when all work queued so far is done.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty() && !is_running_; });
  }
  size_t pending() {
    std::lock_guard lock(mutex_);
    return work_.size() + (is_running_ ? 1 : 0);
  }

 private:
  static strata_status_t push(strata_cpu_queue_t* queue, void (*run)(void*), void* argument) {
    auto* self = static_cast<TestQueue*>(queue);
    if (self->is_closed_) return STRATA_E_STATE;
    if (!self->thread_.joinable()) {
      run(argument);
      return STRATA_OK;
    }
    {
      std::lock_guard lock(self->mutex_);
      self->work_.emplace_back(run, argument);
    }
    self->changed_.notify_all();
    return STRATA_OK;
  }
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_ending_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto [run, argument] = work_.front();
      work_.pop_front();
      is_running_ = true;
      lock.unlock();
      run(argument);
      lock.lock();
      is_running_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<void (*)(void*), void*>> work_;
  bool is_running_ = false;
  bool is_ending_ = false;
  bool is_closed_ = false;
  std::thread thread_;
};

// Elements in memory of ncclMemAlloc ("shared") or of the heap.
template <typename T>
class TestBuffer {
 public:
  TestBuffer(bool is_shared, size_t count) : is_shared_(is_shared), count_(count) {
    const size_t bytes = count * sizeof(T) + 64;
    if (is_shared) {
      EXPECT_EQ(ccl().mem_alloc(&data_, bytes), nccl::Result::kSuccess);
    } else {
      data_ = std::malloc(bytes);
    }
    std::memset(data_, 0x55, bytes);
  }
  TestBuffer(const TestBuffer&) = delete;
  ~TestBuffer() { is_shared_ ? static_cast<void>(ccl().mem_free(data_)) : std::free(data_); }

  T* data() { return static_cast<T*>(data_); }
  T& operator[](size_t i) { return data()[i]; }
  std::vector<T> values(size_t begin, size_t count) {
    return {data() + begin, data() + begin + count};
  }

 private:
  bool is_shared_;
  size_t count_;
  void* data_ = nullptr;
};

// One rank of a test.
struct CclRank {
  int rank;
  int size;
  nccl::Comm comm;
  TestQueue* queue;
  nccl::Stream stream;

  nccl::Result async_error() const {
    nccl::Result error = nccl::Result::kSuccess;
    EXPECT_EQ(ccl().comm_get_async_error(comm, &error), nccl::Result::kSuccess);
    return error;
  }
  std::string error_text() const { return ccl().get_last_error(comm); }
};

struct CclWorld {
  int size = 2;
  bool has_queue_threads = true;
  uint64_t timeout_ms = 20'000;
  std::string name = "test";
};

// Joins `world.size` ranks, each in a thread of its own, runs `body` in each, and destroys the
// communicators.
inline void run_ccl_ranks(const CclWorld& world, const std::function<void(CclRank&)>& body) {
  nccl::UniqueId id;
  ASSERT_EQ(ccl().get_unique_id(&id), nccl::Result::kSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size; ++rank) {
    threads.emplace_back([&, rank] {
      TestQueue queue(world.has_queue_threads);
      ccl().strata_ccl_set_timeout(world.timeout_ms);
      CclRank mine{rank, world.size, nullptr, &queue, queue.stream()};
      nccl::Config config;
      config.comm_name = world.name.c_str();
      ASSERT_EQ(ccl().comm_init_rank_config(&mine.comm, world.size, id, rank, &config),
                nccl::Result::kSuccess)
          << ccl().get_last_error(nullptr);
      body(mine);
      queue.drain();
      ccl().comm_destroy(mine.comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_CCL_FIXTURE_H_
