#include "strata/device/cpu_queue.h"

#include <fmt/format.h>
#include <pthread.h>

#include <exception>
#include <utility>

#include "strata/device/error_sink.h"

namespace strata::device {
namespace {

// Looks that cost about a microsecond in all: longer would keep a core from the rank that is being
// waited for, less would sleep for work that ends at once.
constexpr int kLooksBeforeSleep = 64;
constexpr auto kPatienceAfterAbort = std::chrono::seconds(10);

thread_local bool is_queue_thread = false;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Adds the time of its life to the stall counter, unless in a thread of a queue.
class StallTimer {
 public:
  explicit StallTimer(std::atomic<uint64_t>& counter)
      : counter_(is_queue_thread ? nullptr : &counter) {
    if (counter_ != nullptr) begin_ = CpuQueue::Clock::now();
  }
  ~StallTimer() {
    if (counter_ == nullptr) return;
    const std::chrono::nanoseconds stalled = CpuQueue::Clock::now() - begin_;
    counter_->fetch_add(static_cast<uint64_t>(stalled.count()), std::memory_order_relaxed);
  }
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;

 private:
  std::atomic<uint64_t>* counter_;
  CpuQueue::Clock::time_point begin_;
};

}  // namespace

CpuQueue::CpuQueue(std::string name, Mode mode, std::shared_ptr<Shared> shared)
    : name_(std::move(name)), mode_(mode), shared_(std::move(shared)) {
  enqueue = &CpuQueue::enqueue_external;
}

std::shared_ptr<CpuQueue> CpuQueue::create(std::string name, Mode mode,
                                           std::shared_ptr<Shared> shared) {
  std::shared_ptr<CpuQueue> queue(new CpuQueue(std::move(name), mode, std::move(shared)));
  if (mode == Mode::kThread) {
    queue->thread_ = std::thread([queue] { queue->run_thread(); });  // keeps the queue alive
  }
  return queue;
}

strata_status_t CpuQueue::enqueue_external(strata_cpu_queue_t* queue, void (*run)(void* argument),
                                           void* argument) noexcept {
  try {
    auto* self = static_cast<CpuQueue*>(queue);
    return to_abi(self->push_item({[run, argument] { run(argument); }, true}));
  } catch (const std::exception& error) {
    put_error(STRATA_E_OUT_OF_MEMORY, error.what());
    return STRATA_E_OUT_OF_MEMORY;
  }
}

Status CpuQueue::push(Work work) { return push_item({std::move(work), false}); }

Status CpuQueue::push_item(Item item) {
  if (mode_ == Mode::kInline) return run_inline(std::move(item));
  const std::lock_guard lock(mutex_);
  if (is_closing_) {
    return wrong_state(fmt::format("device: stream '{}' is shutting down", name_));
  }
  items_.push_back(std::move(item));
  queued_.fetch_add(1, std::memory_order_release);
  if (items_.size() == 1) has_work_.notify_one();
  return {};
}

Status CpuQueue::run_inline(Item item) {
  const std::lock_guard running(inline_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (is_closing_) {
      return wrong_state(fmt::format("device: stream '{}' is shutting down", name_));
    }
    queued_.fetch_add(1, std::memory_order_release);
  }
  ++inline_depth_;
  if (item.is_external && inline_depth_ == 1) {
    const StallTimer timer(shared_->stall_nanoseconds);
    run_item(item);
  } else {
    run_item(item);
  }
  // Work that was queued by work counts as done only with it: positions pass in order.
  if (--inline_depth_ > 0) return {};
  const std::lock_guard lock(mutex_);
  done_.store(queued_.load(std::memory_order_relaxed), std::memory_order_release);
  if (waiters_ > 0) has_progress_.notify_all();
  return {};
}

void CpuQueue::run_item(Item& item) noexcept {
  try {
    const TraceSpan span(item.is_external ? shared_->trace.get() : nullptr, name_.c_str());
    item.work();
  } catch (const std::exception& error) {
    fail(internal_error(fmt::format("device: work in stream '{}' threw: {}", name_, error.what())));
  } catch (...) {
    fail(internal_error(fmt::format("device: work in stream '{}' threw", name_)));
  }
}

Status CpuQueue::push_wait(const std::shared_ptr<CpuQueue>& other, uint64_t position) {
  if (other.get() == this) return {};  // in order anyway
  const std::string what =
      mode_ == Mode::kInline
          ? fmt::format("an event of stream '{}'", other->name_)
          : fmt::format("an event of stream '{}', wanted by stream '{}'", other->name_, name_);
  if (mode_ == Mode::kInline) {
    return other->wait_until_passed(position, Clock::now() + shared_->timeout, what);
  }
  if (other->has_passed(position) && other->failure().ok()) return {};
  return push([this, other, position, what] {
    fail(other->wait_until_passed(position, Clock::now() + shared_->timeout, what));
  });
}

void CpuQueue::fail(const Status& status) {
  if (status.ok()) return;
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

Status CpuQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status CpuQueue::wait_until_passed(uint64_t position, Clock::time_point deadline,
                                   const std::string& what) {
  if (shared_->abort->is_set()) return shared_->abort->status(what);
  if (has_passed(position)) return failure();
  const StallTimer timer(shared_->stall_nanoseconds);
  const TraceSpan span(shared_->trace.get(), "device/wait");
  for (int look = 0; look < kLooksBeforeSleep; ++look) {
    if (has_passed(position)) return failure();
    pause_briefly();
  }
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  ++waiters_;
  const bool is_over = has_progress_.wait_until(
      lock, deadline, [&] { return has_passed(position) || shared_->abort->is_set(); });
  --waiters_;
  if (shared_->abort->is_set()) return shared_->abort->status(what);
  return is_over ? failure_ : describe_timeout(position, what, Clock::now() - begin);
}

Status CpuQueue::describe_timeout(uint64_t position, const std::string& what,
                                  std::chrono::nanoseconds waited) const {
  return timeout(
      fmt::format("device: waited {} ms for {}: stream '{}' has done {} of {} pieces of work. "
                  "HINT: another rank "
                  "may hang or have died; look at its output, or raise the timeout",
                  std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), what,
                  name_, done_.load(), position));
}

void CpuQueue::run_thread() {
  is_queue_thread = true;
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return !items_.empty() || is_closing_; });
    if (items_.empty()) break;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    run_item(item);
    item.work = nullptr;
    lock.lock();
    done_.fetch_add(1, std::memory_order_release);
    if (waiters_ > 0) has_progress_.notify_all();
  }
  has_ended_ = true;
  has_progress_.notify_all();
}

Status CpuQueue::close(Clock::time_point deadline) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  is_closing_ = true;
  has_work_.notify_all();
  if (mode_ == Mode::kInline || !thread_.joinable()) return {};
  while (!has_ended_ && Clock::now() < deadline) {
    if (shared_->abort->is_set()) deadline = std::min(deadline, begin + kPatienceAfterAbort);
    const bool was_aborted = shared_->abort->is_set();
    has_progress_.wait_until(
        lock, deadline, [&] { return has_ended_ || (!was_aborted && shared_->abort->is_set()); });
  }
  const bool has_ended = has_ended_;
  lock.unlock();
  if (has_ended) {
    thread_.join();
    return {};
  }
  thread_.detach();
  return describe_timeout(position(), fmt::format("the end of stream '{}'", name_),
                          Clock::now() - begin);
}

void CpuQueue::wake_waiters() {
  const std::lock_guard lock(mutex_);
  has_progress_.notify_all();
}

}  // namespace strata::device
