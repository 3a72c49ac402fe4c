// A thread for calls that have no deadline of their own.
#ifndef STRATA_RENDEZVOUS_DEADLINE_THREAD_H_
#define STRATA_RENDEZVOUS_DEADLINE_THREAD_H_

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

namespace strata::rendezvous {

// Runs calls one after the other. A caller waits for a limited time; a call that does not return
// goes on alone, and so must own what it uses. Calls take no signals.
class DeadlineThread {
 public:
  DeadlineThread();
  // Waits for the call that runs, for a short time; leaves the thread behind if it is stuck.
  ~DeadlineThread();
  DeadlineThread(const DeadlineThread&) = delete;
  DeadlineThread& operator=(const DeadlineThread&) = delete;

  // The value of the call, or nullopt if it did not return in time. `call` throws nothing.
  template <typename Call>
  auto run(Call call, std::chrono::milliseconds limit) -> std::optional<decltype(call())> {
    auto task = std::make_shared<std::packaged_task<decltype(call())()>>(std::move(call));
    auto value = task->get_future();
    post([task] { (*task)(); });
    if (value.wait_for(limit) != std::future_status::ready) return note_overdue(), std::nullopt;
    return value.get();
  }

  // A call has not returned in time, and still has not.
  bool is_stuck() const;

 private:
  struct State;
  void post(std::function<void()> task);
  void note_overdue();

  std::shared_ptr<State> state_;
};

}  // namespace strata::rendezvous

#endif  // STRATA_RENDEZVOUS_DEADLINE_THREAD_H_
