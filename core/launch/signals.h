// Signals as events of a poll loop.
#ifndef STRATA_LAUNCH_SIGNALS_H_
#define STRATA_LAUNCH_SIGNALS_H_

#include <signal.h>

#include <optional>

#include "strata/base/status.h"
#include "strata/launch/rank_process.h"

namespace strata::launch {

// While it lives, the signals that a launcher forwards, job control and SIGCHLD are blocked in this
// thread and read from a descriptor. Signals that the process ignores stay
// so.
class SignalEvents {
 public:
  static Result<SignalEvents> open();
  SignalEvents(SignalEvents&& other) noexcept = default;
  SignalEvents& operator=(SignalEvents&&) = delete;
  ~SignalEvents();  // as before; what arrived meanwhile is dropped

  int fd() const { return fd_.get(); }
  // The next signal that has arrived.
  std::optional<int> next();
  // Until the end of this object. Call it after the children are started: they inherit it.
  static void ignore_broken_pipes();
  // Before this object came.
  const sigset_t& old_mask() const { return old_mask_; }

 private:
  SignalEvents() = default;

  Descriptor fd_;
  sigset_t old_mask_;
  struct sigaction old_pipe_;
  struct sigaction old_child_;
};

}  // namespace strata::launch

#endif  // STRATA_LAUNCH_SIGNALS_H_
