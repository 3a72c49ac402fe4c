#include "strata/device/cuda/cuda_backend.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <thread>
#include <utility>

#include "strata/base/log.h"

namespace strata::device {
namespace {

using Clock = std::chrono::steady_clock;

// Waits shorter than this are polled without a pause: a pause costs about as much.
constexpr auto kPollWithoutPause = std::chrono::microseconds(50);
constexpr auto kPause = std::chrono::microseconds(20);

Result<const strata_cuda_library_t*> open_library(const std::string& path) {
  if (path.empty() || path.front() != '/') {
    return invalid_argument(
        fmt::format("device: CUDA needs libstrata_device_cuda.so by absolute path, not '{}'. HINT: "
                    "HostConfig::device_library",
                    path));
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return not_found(
        fmt::format("device: CUDA was asked for, but '{}' cannot be opened: {}. HINT: it is built "
                    "where nvcc is found; build on a machine with the CUDA toolkit, or use the CPU",
                    path, dlerror()));
  }
  const auto entry =
      reinterpret_cast<strata_cuda_library_fn>(dlsym(handle, STRATA_CUDA_LIBRARY_ENTRY));
  const strata_cuda_library_t* library = entry == nullptr ? nullptr : entry();
  if (library == nullptr || library->struct_size != sizeof(strata_cuda_library_t)) {
    return unsupported(fmt::format(
        "device: '{}' is not the CUDA library of this build. HINT: build both together", path));
  }
  return library;
}

Status check_device(const strata_cuda_library_t& library, int index) {
  int count = 0;
  const int error = library.device_count(&count);
  if (error != 0 || count == 0) {
    return unsupported(fmt::format(
        "device: CUDA was asked for, but this machine shows no GPU ({}). HINT: is the driver "
        "loaded, and CUDA_VISIBLE_DEVICES right? Otherwise use the CPU",
        error != 0 ? library.error_text(error) : "0 devices"));
  }
  if (index < 0 || index >= count) {
    return unsupported(fmt::format(
        "device: GPU {} was asked for, but there are {} (0..{}). HINT: fewer ranks on this machine",
        index, count, count - 1));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const HostConfig& config,
                                                   std::shared_ptr<AbortSignal> abort,
                                                   std::shared_ptr<Trace> trace) {
  STRATA_ASSIGN_OR_RETURN(const strata_cuda_library_t* library,
                          open_library(config.device_library));
  STRATA_RETURN_IF_ERROR(check_device(*library, config.device.index));
  std::unique_ptr<CclMemory> ccl;
  if (!config.ccl_library.empty()) {
    STRATA_ASSIGN_OR_RETURN(ccl, CclMemory::open(config.ccl_library));
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(config, library, std::move(ccl), std::move(abort)));
}

CudaBackend::CudaBackend(const HostConfig& config, const strata_cuda_library_t* library,
                         std::unique_ptr<CclMemory> ccl, std::shared_ptr<AbortSignal> abort)
    : index_(config.device.index),
      world_size_(config.world.size),
      timeout_(config.timeout),
      library_(library),
      ccl_(std::move(ccl)),
      abort_(std::move(abort)) {}

template <typename Call>
Status CudaBackend::run(const char* doing, Call call) {
  int error = library_->use_device(index_);
  if (error == 0) error = call();
  if (error == 0) return {};
  return internal_error(fmt::format("device: {} on GPU {} failed with CUDA error {} ({})", doing,
                                    index_, error, library_->error_text(error)));
}

Result<Backend::Block> CudaBackend::allocate(int32_t place, bool is_collective, uint64_t bytes,
                                             uint64_t alignment) {
  const bool is_device = place == STRATA_PLACE_DEVICE;
  if (is_collective && !is_device) {
    return unsupported(
        "device: on CUDA only device memory can be a buffer of collectives. HINT: "
        "STRATA_PLACE_DEVICE");
  }
  if (place == STRATA_PLACE_HOST) return allocate_plain(bytes, alignment);
  if (is_collective && ccl_ == nullptr && world_size_ > 1) {
    return unsupported(fmt::format(
        "device: memory for collectives of {} ranks needs a communication library. HINT: "
        "HostConfig::ccl_library",
        world_size_));
  }
  void* data = nullptr;
  if (is_collective && ccl_ != nullptr) {
    STRATA_RETURN_IF_ERROR(run("choosing the device", [] { return 0; }));
    STRATA_ASSIGN_OR_RETURN(data, ccl_->allocate(bytes));
  } else {
    const Status made = run("allocating", [&] {
      return is_device ? library_->device_alloc(&data, bytes)
                       : library_->pinned_alloc(&data, bytes);
    });
    if (!made.ok()) return out_of_memory("but " + made.message());
  }
  // CUDA aligns device memory to 256 bytes and pinned memory to pages; more is rarely asked for.
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    free(place, is_collective, data, bytes);
    return unsupported(fmt::format("device: GPU memory aligned to {} bytes", alignment));
  }
  return Block{data, false};
}

void CudaBackend::free(int32_t place, bool is_collective, void* data, uint64_t bytes) {
  if (place == STRATA_PLACE_HOST) return free_plain(data, bytes);
  const Status freed = run("freeing memory", [&]() -> int {
    if (is_collective && ccl_ != nullptr) {
      ccl_->free(data);
      return 0;
    }
    return place == STRATA_PLACE_DEVICE ? library_->device_free(data) : library_->pinned_free(data);
  });
  if (!freed.ok()) log::error("{}", freed.message());
}

Status CudaBackend::clear(int32_t place, void* data, uint64_t bytes) {
  if (place != STRATA_PLACE_DEVICE) {
    std::memset(data, 0, bytes);
    return {};
  }
  STRATA_RETURN_IF_ERROR(zero(compute_stream(), data, bytes));
  return drain(compute_stream(), "zeroing new memory");
}

// Waits until the work queued in `stream` so far is done.
Status CudaBackend::drain(strata_stream_t stream, const std::string& what) {
  STRATA_ASSIGN_OR_RETURN(const strata_event_t event, create_event());
  Status status = record(event, stream);
  if (status.ok()) status = synchronize(event, what, timeout_);
  destroy_event(event);
  return status;
}

// Side streams are their owners'; what the compute stream still does with memory must be over.
Status CudaBackend::close() {
  if (abort_->is_set()) return {};  // work that hangs ends with the process
  return drain(compute_stream(), "the end of the compute stream");
}

Result<strata_stream_t> CudaBackend::create_stream(const std::string& name) {
  void* stream = nullptr;
  STRATA_RETURN_IF_ERROR(
      run("creating a stream", [&] { return library_->stream_create(&stream); }));
  return stream;
}

Status CudaBackend::destroy_stream(strata_stream_t stream) {
  if (stream == compute_stream()) {
    return invalid_argument("device: the compute stream belongs to the host and ends with it");
  }
  const Status drained = drain(stream, "the end of a stream");
  // CUDA lets work that is queued end by itself.
  const Status destroyed =
      run("destroying a stream", [&] { return library_->stream_destroy(stream); });
  return drained.code() == Code::kAborted || drained.ok() ? destroyed : drained;
}

Result<strata_event_t> CudaBackend::create_event() {
  void* event = nullptr;
  STRATA_RETURN_IF_ERROR(run("creating an event", [&] { return library_->event_create(&event); }));
  return event;
}

void CudaBackend::destroy_event(strata_event_t event) {
  const Status destroyed =
      run("destroying an event", [&] { return library_->event_destroy(event); });
  if (!destroyed.ok()) log::error("{}", destroyed.message());
}

Status CudaBackend::record(strata_event_t event, strata_stream_t stream) {
  return run("recording an event", [&] { return library_->event_record(event, stream); });
}

Status CudaBackend::wait(strata_stream_t stream, strata_event_t event) {
  if (abort_->is_set()) return abort_->status("an event");
  return run("waiting for an event", [&] { return library_->stream_wait(stream, event); });
}

Result<bool> CudaBackend::query(strata_event_t event) {
  int32_t passed = 0;
  STRATA_RETURN_IF_ERROR(
      run("asking for an event", [&] { return library_->event_query(event, &passed); }));
  return passed != 0;
}

Status CudaBackend::synchronize(strata_event_t event, const std::string& what,
                                std::chrono::milliseconds timeout) {
  const Clock::time_point begin = Clock::now();
  while (true) {
    if (abort_->is_set()) return abort_->status(what);
    STRATA_ASSIGN_OR_RETURN(const bool has_passed, query(event));
    const std::chrono::nanoseconds waited = Clock::now() - begin;
    if (has_passed) {
      stall_nanoseconds_.fetch_add(static_cast<uint64_t>(waited.count()),
                                   std::memory_order_relaxed);
      return {};
    }
    if (waited > timeout) {
      return strata::timeout(
          fmt::format("device: waited {} ms for {} on GPU {}. HINT: another rank may hang or have "
                      "died; look at its output, or raise the timeout",
                      timeout.count(), what, index_));
    }
    if (waited > kPollWithoutPause) std::this_thread::sleep_for(kPause);
  }
}

Status CudaBackend::copy(strata_stream_t stream, void* dst, const void* src, uint64_t bytes) {
  return run("copying", [&] { return library_->copy(stream, dst, src, bytes); });
}

Status CudaBackend::cast(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                         int32_t src_dtype, uint64_t count) {
  return run("casting",
             [&] { return library_->cast(stream, dst, dst_dtype, src, src_dtype, count); });
}

Status CudaBackend::add(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                        int32_t src_dtype, uint64_t count) {
  return run("adding",
             [&] { return library_->add(stream, dst, dst_dtype, src, src_dtype, count); });
}

Status CudaBackend::scale(strata_stream_t stream, void* dst, int32_t dtype, float factor,
                          uint64_t count) {
  return run("scaling", [&] { return library_->scale(stream, dst, dtype, factor, count); });
}

Status CudaBackend::zero(strata_stream_t stream, void* dst, uint64_t bytes) {
  return run("zeroing", [&] { return library_->zero(stream, dst, bytes); });
}

}  // namespace strata::device
