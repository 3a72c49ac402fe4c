// A few threads that share the ranges of a loop with the thread that asks.
//
// Own threads instead of OpenMP: LibTorch brings its own OpenMP library, and two of them in one
// process fight for cores.
#ifndef STRATA_DEVICE_THREAD_POOL_H_
#define STRATA_DEVICE_THREAD_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/base/status.h"

namespace strata::device {

class ThreadPool {
 public:
  using RangeFunction = void (*)(void* argument, uint64_t begin, uint64_t end);

  // `threads` counts the caller of parallel_for: 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls run(argument, begin, end) over [0, count) in ranges of `grain` or more (but the last),
  // and returns when all are done. May be called by several threads at once and from within `run`.
  // kTimeout: a range did not end within `timeout` of the caller's own work being done; it still
  // runs, and uses `argument`.
  Status parallel_for(uint64_t count, uint64_t grain, RangeFunction run, void* argument,
                      std::chrono::milliseconds timeout);

 private:
  struct Loop;
  void run_thread(int index);

  const int threads_count_;
  std::mutex mutex_;
  std::condition_variable has_loops_;
  std::deque<std::shared_ptr<Loop>> loops_;  // that may have ranges left
  bool is_closing_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_THREAD_POOL_H_
