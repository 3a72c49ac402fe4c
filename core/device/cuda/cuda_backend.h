// A CUDA rank's device, over libstrata_device_cuda.so. Waits of the host poll events, so that every
// one has a deadline and sees an abort.
#ifndef STRATA_DEVICE_CUDA_CUDA_BACKEND_H_
#define STRATA_DEVICE_CUDA_CUDA_BACKEND_H_

#include <atomic>
#include <memory>
#include <string>

#include "strata/device/backend.h"
#include "strata/device/cpu_memory.h"
#include "strata/device/cuda/cuda_library.h"

namespace strata::device {

class CudaBackend final : public Backend {
 public:
  // `library` lives as long as the process; `ccl` may be null in a world of one rank.
  CudaBackend(const HostConfig& config, const strata_cuda_library_t* library,
              std::unique_ptr<CclMemory> ccl, std::shared_ptr<AbortSignal> abort);

  Result<Block> allocate(int32_t place, bool is_collective, uint64_t bytes,
                         uint64_t alignment) override;
  void free(int32_t place, bool is_collective, void* data, uint64_t bytes) override;
  Status clear(int32_t place, void* data, uint64_t bytes) override;

  strata_stream_t compute_stream() const override { return library_->default_stream(); }
  Result<strata_stream_t> create_stream(const std::string& name) override;
  Status destroy_stream(strata_stream_t stream) override;
  Result<strata_event_t> create_event() override;
  void destroy_event(strata_event_t event) override;
  Status record(strata_event_t event, strata_stream_t stream) override;
  Status wait(strata_stream_t stream, strata_event_t event) override;
  Result<bool> query(strata_event_t event) override;
  Status synchronize(strata_event_t event, const std::string& what,
                     std::chrono::milliseconds timeout) override;

  Status copy(strata_stream_t stream, void* dst, const void* src, uint64_t bytes) override;
  Status cast(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
              int32_t src_dtype, uint64_t count) override;
  Status add(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
             int32_t src_dtype, uint64_t count) override;
  Status scale(strata_stream_t stream, void* dst, int32_t dtype, float factor,
               uint64_t count) override;
  Status zero(strata_stream_t stream, void* dst, uint64_t bytes) override;

  Status close() override;
  uint64_t stall_nanoseconds() const override {
    return stall_nanoseconds_.load(std::memory_order_relaxed);
  }
  void wake_waiters() override {}  // they poll

 private:
  // The calling thread uses this rank's GPU, then `call` runs; its error as a Status.
  template <typename Call>
  Status run(const char* doing, Call call);
  Status drain(strata_stream_t stream, const std::string& what);

  const int index_;
  const int world_size_;
  const std::chrono::milliseconds timeout_;
  const strata_cuda_library_t* library_;
  std::unique_ptr<CclMemory> ccl_;
  std::shared_ptr<AbortSignal> abort_;
  std::atomic<uint64_t> stall_nanoseconds_{0};
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_CUDA_CUDA_BACKEND_H_
