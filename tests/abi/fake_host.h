// A host for tests of the contract: every table, one rank, work done at once, memory counted.
#ifndef STRATA_TESTS_ABI_FAKE_HOST_H_
#define STRATA_TESTS_ABI_FAKE_HOST_H_

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "strata/abi/host.h"
#include "strata/plugin/error_sink.h"

namespace strata::test {

class FakeHost : public plugin::ErrorSink {
 public:
  std::atomic<int> allocations{0};  // not freed yet

  strata_host_t* abi() { return reinterpret_cast<strata_host_t*>(this); }
  plugin::HostOffer offer() { return {get_table, this}; }
  std::string take() override { return std::exchange(text(), ""); }

  static const void* get_table(const char* id) {
    const std::string_view name = id;
    if (name == STRATA_HOST_MEMORY_1) return &kMemory;
    if (name == STRATA_HOST_STREAMS_1) return &kStreams;
    if (name == STRATA_HOST_KERNELS_1) return &kKernels;
    if (name == STRATA_HOST_STORE_1) return &kStore;
    if (name == STRATA_HOST_COMMUNICATION_1) return &kCommunication;
    if (name == STRATA_HOST_LOG_1) return &kLog;
    if (name == STRATA_HOST_TRACE_1) return &kTrace;
    if (name == STRATA_HOST_THREADS_1) return &kThreads;
    return nullptr;
  }

 private:
  static std::string& text() {
    static thread_local std::string last;
    return last;
  }
  static FakeHost& of(strata_host_t* host) { return *reinterpret_cast<FakeHost*>(host); }

  static strata_status_t alloc(strata_host_t* host, const strata_memory_request_t* request,
                               void** out) {
    const uint64_t bytes = (request->bytes + 255) / 256 * 256;
    *out = bytes == 0 ? nullptr : std::aligned_alloc(256, bytes);
    if (bytes == 0) return STRATA_OK;
    std::memset(*out, (request->flags & STRATA_MEMORY_ZEROED) != 0 ? 0 : 0x5a, bytes);
    ++of(host).allocations;
    return STRATA_OK;
  }
  static void free(strata_host_t* host, void* memory) {
    if (memory != nullptr) --of(host).allocations;
    std::free(memory);
  }
  static void fail(strata_host_t*, strata_status_t, const char* what) { text() = what; }
  static strata_status_t no_key(strata_host_t* host, const char* key, void*, uint64_t*, uint64_t) {
    fail(host, STRATA_E_TIMEOUT, ("nobody set the key '" + std::string(key) + "'").c_str());
    return STRATA_E_TIMEOUT;
  }

  static constexpr strata_host_memory_1_t kMemory = {
      sizeof(strata_host_memory_1_t), 0, alloc, free,
      [](strata_host_t*, strata_memory_stats_t*) -> strata_status_t { return STRATA_OK; }};
  static constexpr strata_host_streams_1_t kStreams = {
      sizeof(strata_host_streams_1_t),
      0,
      [](strata_host_t*) -> strata_stream_t { return nullptr; },
      [](strata_host_t*, const char*, strata_stream_t* out) -> strata_status_t {
        *out = nullptr;
        return STRATA_OK;
      },
      [](strata_host_t*, strata_stream_t) {},
      [](strata_host_t*, strata_event_t* out) -> strata_status_t {
        *out = nullptr;
        return STRATA_OK;
      },
      [](strata_host_t*, strata_event_t) {},
      [](strata_host_t*, strata_event_t, strata_stream_t) -> strata_status_t { return STRATA_OK; },
      [](strata_host_t*, strata_stream_t, strata_event_t) -> strata_status_t { return STRATA_OK; },
      [](strata_host_t*, strata_event_t, int32_t* passed) -> strata_status_t {
        *passed = 1;
        return STRATA_OK;
      },
      [](strata_host_t*, strata_event_t, uint64_t, const char*) -> strata_status_t {
        return STRATA_OK;
      }};
  static constexpr strata_host_kernels_1_t kKernels = {
      sizeof(strata_host_kernels_1_t),
      0,
      [](strata_host_t*, strata_stream_t, void* to, const void* from,
         uint64_t bytes) -> strata_status_t {
        std::memcpy(to, from, bytes);
        return STRATA_OK;
      },
      [](strata_host_t*, strata_stream_t, void*, int32_t, const void*, int32_t,
         uint64_t) -> strata_status_t { return STRATA_E_UNSUPPORTED; },
      [](strata_host_t*, strata_stream_t, void*, int32_t, const void*, int32_t,
         uint64_t) -> strata_status_t { return STRATA_E_UNSUPPORTED; },
      [](strata_host_t*, strata_stream_t, void*, int32_t, double, uint64_t) -> strata_status_t {
        return STRATA_E_UNSUPPORTED;
      },
      [](strata_host_t*, strata_stream_t, void* to, uint64_t bytes) -> strata_status_t {
        std::memset(to, 0, bytes);
        return STRATA_OK;
      }};
  static constexpr strata_host_store_1_t kStore = {
      sizeof(strata_host_store_1_t), 0,
      [](strata_host_t*, const char*, const void*, uint64_t) -> strata_status_t {
        return STRATA_OK;
      },
      no_key,
      [](strata_host_t*, const char*, int64_t, int64_t* result) -> strata_status_t {
        *result = 1;
        return STRATA_OK;
      }};
  static constexpr strata_host_communication_1_t kCommunication = {
      sizeof(strata_host_communication_1_t), 0, [](strata_host_t*) -> const char* { return ""; },
      [](strata_host_t*) -> uint64_t { return 1000; }, [](strata_host_t*, uint64_t) {}};
  static constexpr strata_host_log_1_t kLog = {sizeof(strata_host_log_1_t), 0,
                                               [](strata_host_t*, int32_t, const char*) {}, fail};
  static constexpr strata_host_trace_1_t kTrace = {
      sizeof(strata_host_trace_1_t), 0, [](strata_host_t*, const char*) {}, [](strata_host_t*) {}};
  static constexpr strata_host_threads_1_t kThreads = {
      sizeof(strata_host_threads_1_t), 0,
      [](strata_host_t*, uint64_t count, uint64_t, void (*run)(void*, uint64_t, uint64_t),
         void* argument) -> strata_status_t {
        run(argument, 0, count);
        return STRATA_OK;
      }};
};

}  // namespace strata::test

#endif  // STRATA_TESTS_ABI_FAKE_HOST_H_
