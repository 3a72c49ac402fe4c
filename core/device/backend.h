// What differs between kinds of devices: where bytes come from, streams, events, kernels.
//
// The Host checks arguments and counts memory; a backend does the work. Methods without a comment
// have the contract of the slot of that name in abi/host.h.
#ifndef STRATA_DEVICE_BACKEND_H_
#define STRATA_DEVICE_BACKEND_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "strata/abi/types.h"
#include "strata/base/status.h"
#include "strata/device/abort_signal.h"
#include "strata/device/host.h"

namespace strata::device {

class Backend {
 public:
  virtual ~Backend() = default;

  struct Block {
    void* data = nullptr;
    bool is_zero = false;  // fresh from the system: already zero bytes
  };
  // `bytes` > 0; `alignment` is a power of two. A failure's text says only why, for example "the
  // machine has no memory left"; the caller adds request and use.
  virtual Result<Block> allocate(int32_t place, bool is_collective, uint64_t bytes,
                                 uint64_t alignment) = 0;
  virtual void free(int32_t place, bool is_collective, void* data, uint64_t bytes) = 0;
  // Fills with zero bytes before it returns.
  virtual Status clear(int32_t place, void* data, uint64_t bytes) = 0;

  virtual strata_stream_t compute_stream() const = 0;
  virtual Result<strata_stream_t> create_stream(const std::string& name) = 0;
  virtual Status destroy_stream(strata_stream_t stream) = 0;
  virtual Result<strata_event_t> create_event() = 0;
  virtual void destroy_event(strata_event_t event) = 0;
  virtual Status record(strata_event_t event, strata_stream_t stream) = 0;
  virtual Status wait(strata_stream_t stream, strata_event_t event) = 0;
  virtual Result<bool> query(strata_event_t event) = 0;
  virtual Status synchronize(strata_event_t event, const std::string& what,
                             std::chrono::milliseconds timeout) = 0;

  // Arguments are checked: known dtypes, no null pointers, sizes above 0.
  virtual Status copy(strata_stream_t stream, void* dst, const void* src, uint64_t bytes) = 0;
  virtual Status cast(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                      int32_t src_dtype, uint64_t count) = 0;
  virtual Status add(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                     int32_t src_dtype, uint64_t count) = 0;
  virtual Status scale(strata_stream_t stream, void* dst, int32_t dtype, float factor,
                       uint64_t count) = 0;
  virtual Status zero(strata_stream_t stream, void* dst, uint64_t bytes) = 0;

  // Waits for the work of all streams and ends them; nothing is queued behind that. On error some
  // of it goes on, and no memory of this host may be given back.
  virtual Status close() = 0;
  // Nanoseconds for which callers stood still for streams; see Host::wait_seconds().
  virtual uint64_t stall_nanoseconds() const = 0;
  // The abort signal was just set: wakes whoever waits.
  virtual void wake_waiters() = 0;
};

Result<std::unique_ptr<Backend>> make_cpu_backend(const HostConfig& config,
                                                  std::shared_ptr<AbortSignal> abort,
                                                  std::shared_ptr<Trace> trace);
Result<std::unique_ptr<Backend>> make_cuda_backend(const HostConfig& config,
                                                   std::shared_ptr<AbortSignal> abort,
                                                   std::shared_ptr<Trace> trace);

}  // namespace strata::device

#endif  // STRATA_DEVICE_BACKEND_H_
