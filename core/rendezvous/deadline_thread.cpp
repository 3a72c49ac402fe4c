#include "strata/rendezvous/deadline_thread.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace strata::rendezvous {
namespace {

constexpr std::chrono::seconds kEndTime{2};

}  // namespace

struct DeadlineThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool is_ending = false;
  bool has_ended = false;
  bool is_overdue = false;  // until the calls that are there have returned

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return is_ending || !tasks.empty(); });
      if (tasks.empty()) break;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it owns ends here, outside the lock
      lock.lock();
      is_overdue = is_overdue && !tasks.empty();
    }
    has_ended = true;
    changed.notify_all();
  }
};

DeadlineThread::DeadlineThread() : state_(std::make_shared<State>()) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);  // the new thread inherits it
  std::thread([state = state_] { state->work(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

DeadlineThread::~DeadlineThread() {
  std::unique_lock lock(state_->mutex);
  state_->is_ending = true;
  state_->changed.notify_all();
  if (state_->is_overdue) return;
  state_->changed.wait_for(lock, kEndTime, [&] { return state_->has_ended; });
}

bool DeadlineThread::is_stuck() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_overdue;
}

void DeadlineThread::note_overdue() {
  const std::lock_guard lock(state_->mutex);
  state_->is_overdue = true;
}

void DeadlineThread::post(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_all();
}

}  // namespace strata::rendezvous
