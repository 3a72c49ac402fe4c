// What the host lends, as C++ objects: memory, streams, events and spans that give themselves back.
//
// A plugin keeps one HostServices per process (set by the entry, see plugin_entry.h) and one Host
// per strategy instance.
#ifndef STRATA_SDK_HOST_H_
#define STRATA_SDK_HOST_H_

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "strata/abi/host.h"
#include "strata/abi/plugin.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk {

// The host's tables. All non-null once fetch() returned true.
struct HostServices {
  const strata_host_memory_1_t* memory = nullptr;
  const strata_host_streams_1_t* streams = nullptr;
  const strata_host_kernels_1_t* kernels = nullptr;
  const strata_host_store_1_t* store = nullptr;
  const strata_host_communication_1_t* communication = nullptr;
  const strata_host_log_1_t* log = nullptr;
  const strata_host_trace_1_t* trace = nullptr;
  const strata_host_threads_1_t* threads = nullptr;

  // Asks the host for every table. Returns the id of the first one that it does not have, or null
  // if all are there.
  const char* fetch(const strata_hello_t* hello);
};

// The services of this plugin's process, filled by the entry before anything else runs.
HostServices& services();

// A host function failed: its text, which has the values, is in the error sink of the thread that
// called it and stays there.
class HostError : public Error {
 public:
  HostError(strata_status_t code, std::string message)
      : Error(code, std::move(message)), thread_(std::this_thread::get_id()) {}
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }

 private:
  std::thread::id thread_;
};

// Throws HostError if a host function failed; `doing` says what for.
inline void check(strata_status_t status, const char* doing) {
  if (status != STRATA_OK) throw HostError(status, std::string(doing) + " failed");
}

// Memory from the host, freed at the end. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(strata_host_t* host, int32_t place, int32_t tag, uint64_t bytes, uint32_t flags,
         const char* label)
      : host_(host), bytes_(bytes) {
    strata_memory_request_t request{};
    request.struct_size = sizeof(request);
    request.place = place;
    request.tag = tag;
    request.flags = flags;
    request.bytes = bytes;
    request.label = label;
    check(services().memory->alloc(host, &request, &data_), label);
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) services().memory->free(host_, data_);
  }

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  char* chars() const { return static_cast<char*>(data_); }
  uint64_t bytes() const { return bytes_; }

 private:
  strata_host_t* host_ = nullptr;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// An event of the host's. A new one counts as passed. Movable.
class Event {
 public:
  Event() = default;
  explicit Event(strata_host_t* host) : host_(host) {
    check(services().streams->create_event(host, &event_), "creating an event");
  }
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) services().streams->destroy_event(host_, event_);
  }

  strata_event_t get() const { return event_; }
  // The event passes when all work queued in `stream` so far is done.
  void record(strata_stream_t stream) {
    check(services().streams->record(host_, event_, stream), "recording an event");
  }
  // Work queued in `stream` from now on waits for this event.
  void hold(strata_stream_t stream) const {
    check(services().streams->wait(host_, stream, event_), "waiting for an event");
  }
  bool has_passed() const {
    int32_t passed = 0;
    check(services().streams->query(host_, event_, &passed), "asking for an event");
    return passed != 0;
  }
  // Blocks the caller, under the host's deadline; `what` names the wait.
  void synchronize(const char* what) const {
    check(services().streams->synchronize(host_, event_, 0, what), what);
  }

 private:
  strata_host_t* host_ = nullptr;
  strata_event_t event_ = nullptr;
};

// A side stream of the host's. Movable.
class Stream {
 public:
  Stream() = default;
  Stream(strata_host_t* host, const char* name) : host_(host) {
    check(services().streams->create(host, name, &stream_), "creating a stream");
  }
  Stream(Stream&& other) noexcept { *this = std::move(other); }
  Stream& operator=(Stream&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) services().streams->destroy(host_, stream_);
  }
  strata_stream_t get() const { return stream_; }

 private:
  strata_host_t* host_ = nullptr;
  strata_stream_t stream_ = nullptr;
};

// A trace span, open as long as the object lives. `name` is the source's words:
// "fsdp/before_forward/all_gather".
class Span {
 public:
  Span(strata_host_t* host, const char* name) : host_(host) { services().trace->begin(host, name); }
  // The same under the name of a strategy: "fsdp", "before_forward/all_gather".
  Span(strata_host_t* host, const std::string& strategy, const char* name)
      : host_(host), text_(strategy + "/" + name) {
    services().trace->begin(host, text_.c_str());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() { services().trace->end(host_); }

 private:
  strata_host_t* host_;
  std::string text_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_HOST_H_
