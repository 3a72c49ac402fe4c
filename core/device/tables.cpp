// The C tables of abi/host.h over a Host: check the arguments, call the method, put what went wrong
// into the error sink. Nothing unwinds out of here.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "strata/abi/host.h"
#include "strata/base/log.h"
#include "strata/device/error_sink.h"
#include "strata/device/host.h"

namespace strata::device {
namespace {

// Runs `body(Host&) -> Status` behind the boundary. `is_valid` says whether the other arguments may
// be read at all.
template <typename Body>
strata_status_t guarded(const char* slot, strata_host_t* host, bool is_valid, Body body) noexcept {
  try {
    if (host == nullptr || !is_valid) {
      return to_abi(invalid_argument(std::string("device: ") + slot +
                                     ": a null pointer, or a struct that is too small"));
    }
    return to_abi(body(*Host::from_abi(host)));
  } catch (const std::bad_alloc&) {
    put_error(STRATA_E_OUT_OF_MEMORY, "device: the machine gives no more memory");
    return STRATA_E_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    put_error(STRATA_E_INTERNAL, error.what());
    return STRATA_E_INTERNAL;
  } catch (...) {
    put_error(STRATA_E_INTERNAL, slot);
    return STRATA_E_INTERNAL;
  }
}

// The value of a result into *out; the default value of its type when it failed.
template <typename T, typename Out>
Status store_result(Result<T> result, Out* out) {
  *out = result.ok() ? static_cast<Out>(*result) : Out{};
  return result.status();
}

const char* text_or(const char* text, const char* otherwise) {
  return text == nullptr ? otherwise : text;
}

// ---- strata.host.memory/1 ----

strata_status_t memory_alloc(strata_host_t* host, const strata_memory_request_t* request,
                             void** out) {
  if (out != nullptr) *out = nullptr;
  const bool is_valid = request != nullptr && out != nullptr &&
                        request->struct_size >= STRATA_MEMORY_REQUEST_MIN_SIZE;
  return guarded("memory.alloc", host, is_valid, [&](Host& self) {
    return store_result(
        self.allocate({request->place, request->tag, request->flags, request->bytes,
                       request->alignment, text_or(request->label, "unnamed memory")}),
        out);
  });
}

void memory_free(strata_host_t* host, void* memory) {
  const strata_status_t status = guarded("memory.free", host, true, [&](Host& self) {
    const Status freed = self.free(memory);
    if (!freed.ok()) log::error("{}", freed.message());
    return freed;
  });
  (void)status;  // in the sink and in the log: the slot returns nothing
}

strata_status_t memory_stats(strata_host_t* host, strata_memory_stats_t* stats) {
  const bool is_valid = stats != nullptr && stats->struct_size >= STRATA_MEMORY_STATS_MIN_SIZE;
  return guarded("memory.stats", host, is_valid, [&](Host& self) -> Status {
    const MemoryStats all = self.memory_stats();
    const PlaceStats* place = nullptr;
    switch (stats->place) {
      case STRATA_PLACE_DEVICE: place = &all.device; break;
      case STRATA_PLACE_PINNED: place = &all.pinned; break;
      case STRATA_PLACE_HOST: place = &all.host; break;
      default:
        return invalid_argument("device: memory.stats: place " + std::to_string(stats->place) +
                                ". HINT: STRATA_PLACE_DEVICE, _PINNED or _HOST");
    }
    std::copy(place->used.begin(), place->used.end(), stats->used);
    std::copy(place->peak.begin(), place->peak.end(), stats->peak);
    stats->used_total = place->used_total;
    stats->peak_total = place->peak_total;
    stats->limit = place->limit;
    return {};
  });
}

constexpr strata_host_memory_1_t kMemory = {sizeof(strata_host_memory_1_t), 0, memory_alloc,
                                            memory_free, memory_stats};

// ---- strata.host.streams/1 ----

strata_stream_t streams_compute(strata_host_t* host) {
  strata_stream_t stream = nullptr;
  (void)guarded("streams.compute", host, true, [&](Host& self) -> Status {
    stream = self.compute_stream();
    return {};
  });
  return stream;
}

strata_status_t streams_create(strata_host_t* host, const char* name, strata_stream_t* out) {
  if (out != nullptr) *out = nullptr;
  return guarded("streams.create", host, out != nullptr, [&](Host& self) {
    return store_result(self.create_stream(text_or(name, "stream")), out);
  });
}

void streams_destroy(strata_host_t* host, strata_stream_t stream) {
  if (stream == nullptr) return;
  (void)guarded("streams.destroy", host, true, [&](Host& self) {
    const Status destroyed = self.destroy_stream(stream);
    if (!destroyed.ok()) log::error("{}", destroyed.message());
    return destroyed;
  });
}

strata_status_t streams_create_event(strata_host_t* host, strata_event_t* out) {
  if (out != nullptr) *out = nullptr;
  return guarded("streams.create_event", host, out != nullptr,
                 [&](Host& self) { return store_result(self.create_event(), out); });
}

void streams_destroy_event(strata_host_t* host, strata_event_t event) {
  if (event == nullptr) return;
  (void)guarded("streams.destroy_event", host, true, [&](Host& self) -> Status {
    self.destroy_event(event);
    return {};
  });
}

strata_status_t streams_record(strata_host_t* host, strata_event_t event, strata_stream_t stream) {
  return guarded("streams.record", host, true,
                 [&](Host& self) { return self.record(event, stream); });
}

strata_status_t streams_wait(strata_host_t* host, strata_stream_t stream, strata_event_t event) {
  return guarded("streams.wait", host, true, [&](Host& self) { return self.wait(stream, event); });
}

strata_status_t streams_query(strata_host_t* host, strata_event_t event, int32_t* passed) {
  if (passed != nullptr) *passed = 0;
  return guarded("streams.query", host, passed != nullptr,
                 [&](Host& self) { return store_result(self.query(event), passed); });
}

strata_status_t streams_synchronize(strata_host_t* host, strata_event_t event, uint64_t timeout_ms,
                                    const char* what) {
  return guarded("streams.synchronize", host, true, [&](Host& self) {
    return self.synchronize(event, text_or(what, "an event"),
                            std::chrono::milliseconds(timeout_ms));
  });
}

constexpr strata_host_streams_1_t kStreams = {sizeof(strata_host_streams_1_t),
                                              0,
                                              streams_compute,
                                              streams_create,
                                              streams_destroy,
                                              streams_create_event,
                                              streams_destroy_event,
                                              streams_record,
                                              streams_wait,
                                              streams_query,
                                              streams_synchronize};

// ---- strata.host.kernels/1 ----

strata_status_t kernels_copy(strata_host_t* host, strata_stream_t stream, void* dst,
                             const void* src, uint64_t bytes) {
  return guarded("kernels.copy", host, true,
                 [&](Host& self) { return self.copy(stream, dst, src, bytes); });
}

strata_status_t kernels_cast(strata_host_t* host, strata_stream_t stream, void* dst,
                             int32_t dst_dtype, const void* src, int32_t src_dtype,
                             uint64_t count) {
  return guarded("kernels.cast", host, true, [&](Host& self) {
    return self.cast(stream, dst, dst_dtype, src, src_dtype, count);
  });
}

strata_status_t kernels_add(strata_host_t* host, strata_stream_t stream, void* dst,
                            int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t count) {
  return guarded("kernels.add", host, true, [&](Host& self) {
    return self.add(stream, dst, dst_dtype, src, src_dtype, count);
  });
}

strata_status_t kernels_scale(strata_host_t* host, strata_stream_t stream, void* dst, int32_t dtype,
                              double factor, uint64_t count) {
  return guarded("kernels.scale", host, true,
                 [&](Host& self) { return self.scale(stream, dst, dtype, factor, count); });
}

strata_status_t kernels_zero(strata_host_t* host, strata_stream_t stream, void* dst,
                             uint64_t bytes) {
  return guarded("kernels.zero", host, true,
                 [&](Host& self) { return self.zero(stream, dst, bytes); });
}

constexpr strata_host_kernels_1_t kKernels = {sizeof(strata_host_kernels_1_t),
                                              0,
                                              kernels_copy,
                                              kernels_cast,
                                              kernels_add,
                                              kernels_scale,
                                              kernels_zero};

// ---- strata.host.store/1 ----

strata_status_t store_set(strata_host_t* host, const char* key, const void* value, uint64_t bytes) {
  const bool is_valid = key != nullptr && (value != nullptr || bytes == 0);
  return guarded("store.set", host, is_valid, [&](Host& self) {
    return self.store_set(
        key, bytes == 0 ? std::string() : std::string(static_cast<const char*>(value), bytes));
  });
}

strata_status_t store_get(strata_host_t* host, const char* key, void* value, uint64_t* bytes,
                          uint64_t timeout_ms) {
  const bool is_valid = key != nullptr && bytes != nullptr && (value != nullptr || *bytes == 0);
  return guarded("store.get", host, is_valid, [&](Host& self) -> Status {
    STRATA_ASSIGN_OR_RETURN(const std::string found,
                            self.store_get(key, std::chrono::milliseconds(timeout_ms)));
    const uint64_t copied = std::min<uint64_t>(*bytes, found.size());
    if (copied > 0) std::memcpy(value, found.data(), copied);
    *bytes = found.size();
    return {};
  });
}

strata_status_t store_add(strata_host_t* host, const char* key, int64_t delta, int64_t* result) {
  return guarded("store.add", host, key != nullptr && result != nullptr, [&](Host& self) -> Status {
    STRATA_ASSIGN_OR_RETURN(*result, self.store_add(key, delta));
    return {};
  });
}

constexpr strata_host_store_1_t kStore = {sizeof(strata_host_store_1_t), 0, store_set, store_get,
                                          store_add};

// ---- strata.host.communication/1 ----

const char* communication_library(strata_host_t* host) {
  return host == nullptr ? nullptr : Host::from_abi(host)->config().ccl_library.c_str();
}

uint64_t communication_timeout_ms(strata_host_t* host) {
  return host == nullptr ? 0
                         : static_cast<uint64_t>(Host::from_abi(host)->config().timeout.count());
}

void communication_count_sent(strata_host_t* host, uint64_t bytes) {
  if (host != nullptr) Host::from_abi(host)->count_sent(bytes);
}

constexpr strata_host_communication_1_t kCommunication = {
    sizeof(strata_host_communication_1_t), 0, communication_library, communication_timeout_ms,
    communication_count_sent};

// ---- strata.host.log/1 ----

void log_log(strata_host_t* host, int32_t level, const char* text) {
  const char* line = text_or(text, "");
  (void)guarded("log.log", host, true, [&](Host&) -> Status {
    if (level >= STRATA_LOG_ERROR) {
      log::error("{}", line);
    } else if (level == STRATA_LOG_WARNING) {
      log::warning("{}", line);
    } else if (level == STRATA_LOG_INFO) {
      log::info("{}", line);
    } else {
      log::debug("{}", line);
    }
    return {};
  });
}

void log_fail(strata_host_t* host, strata_status_t status, const char* text) {
  put_error(status, text_or(text, ""));
}

constexpr strata_host_log_1_t kLog = {sizeof(strata_host_log_1_t), 0, log_log, log_fail};

// ---- strata.host.trace/1 ----

void trace_begin(strata_host_t* host, const char* name) {
  (void)guarded("trace.begin", host, name != nullptr, [&](Host& self) -> Status {
    self.trace_begin(name);
    return {};
  });
}

void trace_end(strata_host_t* host) {
  (void)guarded("trace.end", host, true, [&](Host& self) -> Status {
    self.trace_end();
    return {};
  });
}

constexpr strata_host_trace_1_t kTrace = {sizeof(strata_host_trace_1_t), 0, trace_begin, trace_end};

// ---- strata.host.threads/1 ----

strata_status_t threads_parallel_for(strata_host_t* host, uint64_t count, uint64_t grain,
                                     void (*run)(void* argument, uint64_t begin, uint64_t end),
                                     void* argument) {
  return guarded("threads.parallel_for", host, run != nullptr,
                 [&](Host& self) { return self.parallel_for(count, grain, run, argument); });
}

constexpr strata_host_threads_1_t kThreads = {sizeof(strata_host_threads_1_t), 0,
                                              threads_parallel_for};

struct Entry {
  const char* id;
  const void* table;
};

constexpr Entry kTables[] = {
    {STRATA_HOST_MEMORY_1, &kMemory},
    {STRATA_HOST_STREAMS_1, &kStreams},
    {STRATA_HOST_KERNELS_1, &kKernels},
    {STRATA_HOST_STORE_1, &kStore},
    {STRATA_HOST_COMMUNICATION_1, &kCommunication},
    {STRATA_HOST_LOG_1, &kLog},
    {STRATA_HOST_TRACE_1, &kTrace},
    {STRATA_HOST_THREADS_1, &kThreads},
};

}  // namespace

const void* Host::table(const char* id) {
  if (id == nullptr) return nullptr;
  for (const Entry& entry : kTables) {
    if (std::strcmp(entry.id, id) == 0) return entry.table;
  }
  return nullptr;
}

}  // namespace strata::device
