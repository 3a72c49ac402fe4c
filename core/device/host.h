// What one rank lends to its strategy: memory, streams, kernels, store, log, trace, threads.
//
// A Host stands behind the opaque strata_host_t of abi/host.h. There is one per rank; several live
// in one process when ranks are threads. Its tables are the same for all of them and are found by
// id through Host::table. C++ callers use the methods below, which do what the slots of the same
// name do and say why not in a Status; plugins use the tables, which put that text into the error
// sink of the calling thread. Nothing unwinds out of a table's function.
//
// On CPU the compute stream runs its work at once, in the calling thread; each side stream is an
// in-order queue with a thread of its own. On CUDA streams and events are the device's.
#ifndef STRATA_DEVICE_HOST_H_
#define STRATA_DEVICE_HOST_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "strata/abi/host.h"
#include "strata/base/status.h"
#include "strata/base/store.h"
#include "strata/base/world.h"

namespace strata::device {

class AbortSignal;
class Backend;
class Memory;
class ThreadPool;
class Trace;

inline constexpr std::chrono::milliseconds kHeadStart{500};

struct HostConfig {
  strata_device_t device = {STRATA_DEVICE_CPU, 0};
  World world;
  std::shared_ptr<Store> store;  // required when the world has several ranks
  std::string store_prefix;      // in front of every key of this host's, for example "run1/fsdp"
  // Absolute path of the library that speaks NCCL's C API for this device. Empty is legal in a
  // world of one rank only.
  std::string ccl_library;
  // Absolute path of libstrata_device_cuda.so; not looked at on CPU.
  std::string device_library;
  // Of every wait. One for a stream lasts kHeadStart longer: a collective in it that waits for a
  // rank has the same deadline, and can name the rank.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  uint64_t device_limit = 0;  // bytes of device memory; 0: none
  uint64_t host_limit = 0;    // bytes of host memory, pinned included; 0: none
  // False: side streams of the CPU run their work in the calling thread, when it is queued.
  bool use_stream_threads = true;
  int threads = 1;  // of parallel_for, the caller's included
};

// Counters of one place, in bytes, by STRATA_TAG_*.
struct PlaceStats {
  std::array<uint64_t, STRATA_TAG_COUNT> used{};
  std::array<uint64_t, STRATA_TAG_COUNT> peak{};
  uint64_t used_total = 0;
  uint64_t peak_total = 0;  // the largest sum, which is not the sum of the largest
  uint64_t limit = 0;       // 0: none
};

struct MemoryStats {
  PlaceStats device;
  PlaceStats pinned;
  PlaceStats host;
  uint64_t used_total = 0;  // all places
  uint64_t peak_total = 0;  // the largest sum over all places
  // Over all places, for example used_of(STRATA_TAG_OPTIMIZER).
  uint64_t used_of(int32_t tag) const {
    return device.used[tag] + pinned.used[tag] + host.used[tag];
  }
};

struct MemoryRequest {
  int32_t place = STRATA_PLACE_DEVICE;
  int32_t tag = STRATA_TAG_OTHER;
  uint32_t flags = 0;  // STRATA_MEMORY_*
  uint64_t bytes = 0;
  uint64_t alignment = 0;  // 0: 256
  std::string label;       // for out-of-memory texts
};

// The text that the calling thread put last into the error sink, and clears it; {STRATA_OK, ""} if
// there is none. Thread-local: a slot's text is taken by the thread that called the slot.
struct SinkText {
  strata_status_t status = STRATA_OK;
  std::string text;
};
SinkText take_error();

class Host {
 public:
  // Opens the communication library and, on CUDA, the device library.
  //
  // Returns   kInvalidArgument  a field of the configuration, by name
  //           kNotFound         a library is not there; the text has its path and the loader's
  //           words kUnsupported      CUDA without a GPU; a device that this build does not know
  static Result<std::unique_ptr<Host>> create(HostConfig config);
  // Frees what was not given back, with a warning that names it. REQUIRES: no strategy has it.
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // What strategies get.
  strata_host_t* abi() { return reinterpret_cast<strata_host_t*>(this); }
  static Host* from_abi(strata_host_t* host) { return reinterpret_cast<Host*>(host); }
  // The host's table of that id ("strata.host.memory/1"), or null. For hello->get_table.
  static const void* table(const char* id);

  const HostConfig& config() const { return config_; }

  // ---- memory: every byte is counted by place and tag ----

  // The result stays at its address until free(). Null for 0 bytes. On kOutOfMemory nothing is
  // counted and the text has request, limit and use by tag.
  Result<void*> allocate(const MemoryRequest& request);
  // kInvalidArgument: the pointer is not of this host, or was freed before; nothing happens.
  Status free(void* memory);
  // Counts bytes that somebody else allocated (delta > 0) or freed (delta < 0), for example
  // LibTorch's. They count towards peaks and totals, never against limits.
  void count_external(int32_t place, int32_t tag, int64_t delta);
  MemoryStats memory_stats() const;
  // Peaks begin anew at what is in use now.
  void reset_memory_peaks();

  // ---- streams and events, as strata.host.streams/1 ----

  strata_stream_t compute_stream() const;
  Result<strata_stream_t> create_stream(const std::string& name);
  // Waits for the work of the stream. kTimeout: the work goes on and nothing that it uses may be
  // freed.
  Status destroy_stream(strata_stream_t stream);
  Result<strata_event_t> create_event();
  void destroy_event(strata_event_t event);
  Status record(strata_event_t event, strata_stream_t stream);
  // Work queued in `stream` from now on waits for the latest record of `event`. Blocks the caller
  // on the CPU's compute stream.
  Status wait(strata_stream_t stream, strata_event_t event);
  Result<bool> query(strata_event_t event);
  // Blocks until the event has passed. `what` names the wait in the text of a time-out; a timeout
  // of 0 means the host's.
  Status synchronize(strata_event_t event, const std::string& what,
                     std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

  // ---- elementwise work, as strata.host.kernels/1 ----

  Status copy(strata_stream_t stream, void* dst, const void* src, uint64_t bytes);
  Status cast(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
              int32_t src_dtype, uint64_t count);
  Status add(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
             int32_t src_dtype, uint64_t count);
  Status scale(strata_stream_t stream, void* dst, int32_t dtype, double factor, uint64_t count);
  Status zero(strata_stream_t stream, void* dst, uint64_t bytes);

  // ---- the others ----

  // Sets and gets keys below the prefix. get() returns kAborted within a second of abort().
  Status store_set(const std::string& key, const std::string& value);
  Result<std::string> store_get(const std::string& key, std::chrono::milliseconds timeout);
  Result<int64_t> store_add(const std::string& key, int64_t delta);

  using RangeFunction = void (*)(void* argument, uint64_t begin, uint64_t end);
  // Calls run(argument, begin, end) over [0, count), in ranges of at least `grain` (but the last).
  Status parallel_for(uint64_t count, uint64_t grain, RangeFunction run, void* argument);

  // Bytes put on the wire for collectives, since the start and since the last take.
  uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  uint64_t take_sent_bytes();
  void count_sent(uint64_t bytes) { sent_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // Seconds for which callers stood still for streams: blocked in wait() and synchronize(), or
  // running a collective that was queued in a stream without a thread.
  double wait_seconds() const;
  double take_wait_seconds();

  // Makes every wait of this host return kAborted with this reason, now and later. Idempotent: the
  // first reason stays. Any thread.
  void abort(const std::string& reason);
  bool is_aborted() const;

  // Trace spans of this host: off by default, and nearly free then. Span below closes what it opens.
  void enable_trace(bool is_on);
  void trace_begin(const char* name);
  void trace_end();
  // Writes the spans recorded so far (the latest 65536 of each thread) as Chrome trace JSON, one
  // process per rank. Any thread.
  Status write_trace(const std::string& path) const;

 private:
  explicit Host(HostConfig config);
  Status open();
  std::string full_key(const std::string& key) const;

  HostConfig config_;
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> taken_sent_bytes_{0};
  std::atomic<uint64_t> taken_wait_ns_{0};
  std::shared_ptr<AbortSignal> abort_;
  std::shared_ptr<Trace> trace_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Memory> memory_;
};

// A trace span of the calling thread, open as long as the object lives. `name` outlives it.
class Span {
 public:
  Span(Host& host, const char* name) : host_(host) { host_.trace_begin(name); }
  ~Span() { host_.trace_end(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Host& host_;
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_HOST_H_
