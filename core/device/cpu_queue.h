// An in-order queue of work on the CPU: what a CPU stream points to.
//
// Work is counted. The n-th piece queued is at position n; a queue has passed n when the first n
// pieces are done. An event is a queue and a position, so recording it again, waiting for it
// after that, or destroying it early needs no further care.
#ifndef STRATA_DEVICE_CPU_QUEUE_H_
#define STRATA_DEVICE_CPU_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "strata/abi/types.h"
#include "strata/base/status.h"
#include "strata/device/abort_signal.h"
#include "strata/device/trace.h"

namespace strata::device {

class CpuQueue final : public strata_cpu_queue_t, public std::enable_shared_from_this<CpuQueue> {
 public:
  enum class Mode {
    kInline,  // runs work in the thread that queues it, before the call returns
    kThread,  // a thread of its own
  };
  using Work = std::function<void()>;
  using Clock = std::chrono::steady_clock;

  // What the queues of one host share.
  struct Shared {
    std::shared_ptr<AbortSignal> abort;
    std::chrono::milliseconds timeout{0};  // of waits inside a queue
    std::shared_ptr<Trace> trace;
    std::atomic<uint64_t> stall_nanoseconds{0};
  };

  static std::shared_ptr<CpuQueue> create(std::string name, Mode mode,
                                          std::shared_ptr<Shared> shared);
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  strata_stream_t handle() { return static_cast<strata_cpu_queue_t*>(this); }
  const std::string& name() const { return name_; }
  Mode mode() const { return mode_; }

  // Queues one piece of work. kState: the queue is shutting down and `work` will never run.
  Status push(Work work);
  // Work queued from now on begins when `other` has passed `position`. Blocks on an inline queue.
  // When that wait fails, the failure sticks to this queue: its work still runs (it may own
  // something), and every later wait for this queue returns that failure.
  Status push_wait(const std::shared_ptr<CpuQueue>& other, uint64_t position);

  // How many pieces were queued so far.
  uint64_t position() const { return queued_.load(std::memory_order_acquire); }
  bool has_passed(uint64_t position) const {
    return done_.load(std::memory_order_acquire) >= position;
  }
  // What went wrong in this queue first, if anything did.
  Status failure() const;
  // Blocks until the queue has passed `position`. kTimeout names `what`, kAborted the reason.
  Status wait_until_passed(uint64_t position, Clock::time_point deadline, const std::string& what);

  // Ends the queue when its work is done. kTimeout: its thread goes on by itself and ends later.
  Status close(Clock::time_point deadline);
  // The abort signal was set.
  void wake_waiters();

 private:
  struct Item {
    Work work;
    bool is_external = false;  // queued through the contract's enqueue
  };
  CpuQueue(std::string name, Mode mode, std::shared_ptr<Shared> shared);
  static strata_status_t enqueue_external(strata_cpu_queue_t* queue, void (*run)(void* argument),
                                          void* argument) noexcept;
  Status push_item(Item item);
  Status run_inline(Item item);
  void run_item(Item& item) noexcept;
  void fail(const Status& status);
  void run_thread();
  Status describe_timeout(uint64_t position, const std::string& what,
                          std::chrono::nanoseconds waited) const;

  const std::string name_;
  const Mode mode_;
  const std::shared_ptr<Shared> shared_;
  std::atomic<uint64_t> queued_{0};
  std::atomic<uint64_t> done_{0};

  std::recursive_mutex inline_mutex_;  // kInline: held while work runs
  int inline_depth_ = 0;               // work of an inline queue may queue more

  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_progress_;
  std::deque<Item> items_;
  int waiters_ = 0;
  bool is_closing_ = false;
  bool has_ended_ = false;
  Status failure_;
  std::thread thread_;
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_CPU_QUEUE_H_
