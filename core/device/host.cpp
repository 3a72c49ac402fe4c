#include "strata/device/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "strata/base/log.h"
#include "strata/device/abort_signal.h"
#include "strata/device/backend.h"
#include "strata/device/cpu_kernels.h"
#include "strata/device/memory.h"
#include "strata/device/thread_pool.h"
#include "strata/device/trace.h"

namespace strata::device {
namespace {

// Waits that the store makes for us are cut into these, to notice an abort in between.
constexpr auto kStoreSlice = std::chrono::milliseconds(200);

Status check_config(const HostConfig& config) {
  const World& world = config.world;
  if (world.size < 1 || world.rank < 0 || world.rank >= world.size) {
    return invalid_argument(
        fmt::format("device: rank {} of a world of {}", world.rank, world.size));
  }
  if (world.size > 1 && config.store == nullptr) {
    return invalid_argument(fmt::format(
        "device: a world of {} ranks needs a store. HINT: HostConfig::store", world.size));
  }
  if (config.ccl_library.empty() && world.size > 1) {
    return invalid_argument(fmt::format(
        "device: a world of {} ranks needs a communication library. HINT: HostConfig::ccl_library",
        world.size));
  }
  if (!config.ccl_library.empty() && config.ccl_library.front() != '/') {
    return invalid_argument(fmt::format(
        "device: the communication library '{}' is not an absolute path", config.ccl_library));
  }
  if (config.timeout <= std::chrono::milliseconds(0)) {
    return invalid_argument(
        fmt::format("device: a timeout of {} ms. HINT: at least 1 ms", config.timeout.count()));
  }
  if (config.threads < 1) {
    return invalid_argument(
        fmt::format("device: {} threads. HINT: at least 1, the caller's own", config.threads));
  }
  return {};
}

Status check_pointers(const char* kernel, const void* dst, const void* src) {
  if (dst != nullptr && src != nullptr) return {};
  return invalid_argument(
      fmt::format("device: {}: a null pointer (dst {}, src {})", kernel, dst, src));
}

Status check_dtypes(const char* kernel, int32_t dst, int32_t src) {
  if (is_kernel_dtype(dst) && is_kernel_dtype(src)) return {};
  return unsupported(fmt::format(
      "device: {}: dtype {} from dtype {}. HINT: STRATA_DTYPE_F32, _BF16 and _F16 are supported",
      kernel, dst, src));
}

}  // namespace

Result<std::unique_ptr<Host>> Host::create(HostConfig config) {
  STRATA_RETURN_IF_ERROR(check_config(config));
  try {
    std::unique_ptr<Host> host(new Host(std::move(config)));
    STRATA_RETURN_IF_ERROR(host->open());
    return host;
  } catch (const std::system_error& error) {
    return out_of_memory(
        fmt::format("device: the host's threads do not start: {}. HINT: ulimit -u", error.what()));
  }
}

Host::Host(HostConfig config)
    : config_(std::move(config)),
      abort_(std::make_shared<AbortSignal>()),
      trace_(std::make_shared<Trace>(config_.world.rank)),
      pool_(std::make_unique<ThreadPool>(config_.threads)) {}

Status Host::open() {
  if (config_.store == nullptr) config_.store = std::make_shared<InProcessStore>();
  switch (config_.device.type) {
    case STRATA_DEVICE_CPU: {
      STRATA_ASSIGN_OR_RETURN(backend_, make_cpu_backend(config_, abort_, trace_));
      break;
    }
    case STRATA_DEVICE_CUDA: {
      STRATA_ASSIGN_OR_RETURN(backend_, make_cuda_backend(config_, abort_, trace_));
      break;
    }
    default:
      return unsupported(fmt::format("device: device type {}. HINT: STRATA_DEVICE_CPU or _CUDA",
                                     config_.device.type));
  }
  memory_ = std::make_unique<Memory>(*backend_, config_.device_limit, config_.host_limit);
  return {};
}

Host::~Host() {
  if (memory_ == nullptr) return;  // never opened
  if (const Status closed = backend_->close(); !closed.ok()) {
    log::error("{}", closed.message());
    memory_->abandon();
  }
}

Result<void*> Host::allocate(const MemoryRequest& request) { return memory_->allocate(request); }

Status Host::free(void* memory) { return memory_->free(memory); }

void Host::count_external(int32_t place, int32_t tag, int64_t delta) {
  memory_->count_external(place, tag, delta);
}

MemoryStats Host::memory_stats() const { return memory_->stats(); }

void Host::reset_memory_peaks() { memory_->reset_peaks(); }

strata_stream_t Host::compute_stream() const { return backend_->compute_stream(); }

Result<strata_stream_t> Host::create_stream(const std::string& name) {
  return backend_->create_stream(name);
}

Status Host::destroy_stream(strata_stream_t stream) { return backend_->destroy_stream(stream); }

Result<strata_event_t> Host::create_event() { return backend_->create_event(); }

void Host::destroy_event(strata_event_t event) { backend_->destroy_event(event); }

Status Host::record(strata_event_t event, strata_stream_t stream) {
  return backend_->record(event, stream);
}

Status Host::wait(strata_stream_t stream, strata_event_t event) {
  return backend_->wait(stream, event);
}

Result<bool> Host::query(strata_event_t event) { return backend_->query(event); }

Status Host::synchronize(strata_event_t event, const std::string& what,
                         std::chrono::milliseconds timeout) {
  return backend_->synchronize(event, what,
                               timeout.count() == 0 ? config_.timeout + kHeadStart : timeout);
}

Status Host::copy(strata_stream_t stream, void* dst, const void* src, uint64_t bytes) {
  if (bytes == 0) return {};
  STRATA_RETURN_IF_ERROR(check_pointers("copy", dst, src));
  const auto to = reinterpret_cast<uintptr_t>(dst);
  const auto from = reinterpret_cast<uintptr_t>(src);
  if ((to >= from ? to - from : from - to) < bytes) {
    return invalid_argument(
        fmt::format("device: copy: {} bytes from {} to {} overlap", bytes, src, dst));
  }
  return backend_->copy(stream, dst, src, bytes);
}

Status Host::cast(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                  int32_t src_dtype, uint64_t count) {
  STRATA_RETURN_IF_ERROR(check_dtypes("cast", dst_dtype, src_dtype));
  if (count == 0) return {};
  STRATA_RETURN_IF_ERROR(check_pointers("cast", dst, src));
  return backend_->cast(stream, dst, dst_dtype, src, src_dtype, count);
}

Status Host::add(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                 int32_t src_dtype, uint64_t count) {
  STRATA_RETURN_IF_ERROR(check_dtypes("add", dst_dtype, src_dtype));
  if (count == 0) return {};
  STRATA_RETURN_IF_ERROR(check_pointers("add", dst, src));
  return backend_->add(stream, dst, dst_dtype, src, src_dtype, count);
}

Status Host::scale(strata_stream_t stream, void* dst, int32_t dtype, double factor,
                   uint64_t count) {
  STRATA_RETURN_IF_ERROR(check_dtypes("scale", dtype, dtype));
  if (count == 0) return {};
  STRATA_RETURN_IF_ERROR(check_pointers("scale", dst, dst));
  return backend_->scale(stream, dst, dtype, static_cast<float>(factor), count);
}

Status Host::zero(strata_stream_t stream, void* dst, uint64_t bytes) {
  if (bytes == 0) return {};
  STRATA_RETURN_IF_ERROR(check_pointers("zero", dst, dst));
  return backend_->zero(stream, dst, bytes);
}

std::string Host::full_key(const std::string& key) const {
  return config_.store_prefix.empty() ? key : config_.store_prefix + "/" + key;
}

Status Host::store_set(const std::string& key, const std::string& value) {
  return config_.store->set(full_key(key), value);
}

Result<std::string> Host::store_get(const std::string& key, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const std::string full = full_key(key);
  const auto patience = timeout.count() == 0 ? config_.timeout : timeout;
  const Clock::time_point deadline = Clock::now() + patience;
  while (true) {
    if (abort_->is_set()) return abort_->status(fmt::format("key '{}' of the store", full));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return strata::timeout(
          fmt::format("store: key '{}' was not set within {} ms. HINT: did every rank start?", full,
                      patience.count()));
    }
    Result<std::string> value =
        config_.store->get(full, std::min<std::chrono::milliseconds>(left, kStoreSlice));
    if (value.ok() || value.status().code() != Code::kTimeout) return value;
  }
}

Result<int64_t> Host::store_add(const std::string& key, int64_t delta) {
  return config_.store->add(full_key(key), delta);
}

Status Host::parallel_for(uint64_t count, uint64_t grain, RangeFunction run, void* argument) {
  if (run == nullptr) return invalid_argument("device: parallel_for: `run` is null");
  return pool_->parallel_for(count, grain, run, argument, config_.timeout);
}

uint64_t Host::take_sent_bytes() {
  const uint64_t sent = sent_bytes();
  return sent - taken_sent_bytes_.exchange(sent, std::memory_order_relaxed);
}

double Host::wait_seconds() const {
  return static_cast<double>(backend_->stall_nanoseconds()) * 1e-9;
}

double Host::take_wait_seconds() {
  const uint64_t waited = backend_->stall_nanoseconds();
  const uint64_t before = taken_wait_ns_.exchange(waited, std::memory_order_relaxed);
  return static_cast<double>(waited - before) * 1e-9;
}

void Host::abort(const std::string& reason) {
  abort_->set(reason);
  backend_->wake_waiters();
}

bool Host::is_aborted() const { return abort_->is_set(); }

void Host::enable_trace(bool is_on) { trace_->enable(is_on); }

void Host::trace_begin(const char* name) { trace_->begin(name); }

void Host::trace_end() { trace_->end(); }

Status Host::write_trace(const std::string& path) const { return trace_->write(path); }

}  // namespace strata::device
