#include "strata/device/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

namespace strata::device {

// A loop whose ranges are handed out one by one.
struct ThreadPool::Loop {
  uint64_t count = 0;
  uint64_t range = 0;
  RangeFunction run = nullptr;
  void* argument = nullptr;
  std::atomic<uint64_t> next{0};  // first element not handed out
  std::atomic<uint64_t> done{0};  // elements of ranges that ended
  std::mutex mutex;
  std::condition_variable has_ended;

  // Runs ranges until none is left to hand out.
  void help() {
    while (true) {
      const uint64_t begin = next.fetch_add(range, std::memory_order_relaxed);
      if (begin >= count) return;
      const uint64_t end = begin + std::min(range, count - begin);
      run(argument, begin, end);
      if (done.fetch_add(end - begin, std::memory_order_acq_rel) + (end - begin) == count) {
        const std::lock_guard lock(mutex);
        has_ended.notify_all();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_count_(std::max(threads, 1)) {
  for (int i = 1; i < threads_count_; ++i) threads_.emplace_back([this, i] { run_thread(i); });
}

ThreadPool::~ThreadPool() {
  const std::lock_guard lock(mutex_);
  is_closing_ = true;
  has_loops_.notify_all();
}

void ThreadPool::run_thread(int index) {
  pthread_setname_np(pthread_self(), fmt::format("pool/{}", index).c_str());
  std::unique_lock lock(mutex_);
  while (true) {
    has_loops_.wait(lock, [&] { return !loops_.empty() || is_closing_; });
    if (is_closing_) return;
    const std::shared_ptr<Loop> loop = loops_.front();
    lock.unlock();
    loop->help();
    lock.lock();
    std::erase(loops_, loop);  // nothing is left to hand out
  }
}

Status ThreadPool::parallel_for(uint64_t count, uint64_t grain, RangeFunction run, void* argument,
                                std::chrono::milliseconds timeout) {
  if (count == 0) return {};
  const uint64_t least = std::max<uint64_t>(grain, 1);
  if (threads_count_ == 1 || count <= least) {
    run(argument, 0, count);
    return {};
  }
  auto loop = std::make_shared<Loop>();
  loop->count = count;
  // Four ranges a thread even out threads that come late.
  const auto wanted = static_cast<uint64_t>(threads_count_) * 4;
  loop->range = std::max(least, (count + wanted - 1) / wanted);
  loop->run = run;
  loop->argument = argument;
  {
    const std::lock_guard lock(mutex_);
    loops_.push_back(loop);
    has_loops_.notify_all();
  }
  loop->help();
  {
    const std::lock_guard lock(mutex_);
    std::erase(loops_, loop);
  }
  std::unique_lock lock(loop->mutex);
  const bool has_ended = loop->has_ended.wait_for(
      lock, timeout, [&] { return loop->done.load(std::memory_order_acquire) == count; });
  if (has_ended) return {};
  return strata::timeout(fmt::format(
      "device: waited {} ms for a loop of {} elements: {} are done. HINT: a range hangs",
      timeout.count(), count, loop->done.load()));
}

}  // namespace strata::device
