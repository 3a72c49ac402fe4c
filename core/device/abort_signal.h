// Whether a host was aborted, and why. Set once; every wait of the host looks at it.
#ifndef STRATA_DEVICE_ABORT_SIGNAL_H_
#define STRATA_DEVICE_ABORT_SIGNAL_H_

#include <atomic>
#include <mutex>
#include <string>

#include "strata/base/status.h"

namespace strata::device {

class AbortSignal {
 public:
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }

  // The first reason stays.
  void set(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (is_set()) return;
    reason_ = reason;
    is_set_.store(true, std::memory_order_release);
  }

  // kAborted: what was being waited for, and the reason.
  Status status(const std::string& what) const {
    const std::lock_guard lock(mutex_);
    return aborted("device: the wait for " + what + " ended by an abort: " + reason_);
  }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_ABORT_SIGNAL_H_
