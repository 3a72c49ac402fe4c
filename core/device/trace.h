// Trace spans of one host: recorded per thread, written as Chrome trace JSON.
#ifndef STRATA_DEVICE_TRACE_H_
#define STRATA_DEVICE_TRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strata/base/status.h"

namespace strata::device {

class Trace {
 public:
  explicit Trace(int rank);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Spans that are kept of each thread: the latest.
  static constexpr size_t kSpansPerThread = 65536;

  // Off at first. Spans that are open when it goes on or off are not recorded.
  void enable(bool is_on);
  bool is_enabled() const { return is_on_.load(std::memory_order_relaxed); }

  // Opens and closes a span of the calling thread. `name` stays valid until end(). Off, both cost
  // one load.
  void begin(const char* name) {
    if (is_enabled()) begin_span(name);
  }
  void end() {
    if (is_enabled()) end_span();
  }

  // Times are microseconds of the machine's monotonic clock, so files of ranks on one machine can
  // be laid side by side.
  Status write(const std::string& path) const;

 private:
  struct ThreadSpans;
  void begin_span(const char* name);
  void end_span();
  ThreadSpans& of_this_thread();

  const int rank_;
  const uint64_t id_;  // unique in the process, unlike an address
  std::atomic<bool> is_on_{false};
  std::atomic<uint64_t> epoch_{0};  // how often enable() was called
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ThreadSpans>> threads_;
};

// A span that is open as long as the object lives; none if `trace` is null.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name) : trace_(trace) {
    if (trace_ != nullptr) trace_->begin(name);
  }
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_TRACE_H_
