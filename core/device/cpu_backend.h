// A CPU rank's device: queues for streams, positions in queues for events, loops for kernels.
#ifndef STRATA_DEVICE_CPU_BACKEND_H_
#define STRATA_DEVICE_CPU_BACKEND_H_

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "strata/device/backend.h"
#include "strata/device/cpu_memory.h"
#include "strata/device/cpu_queue.h"

namespace strata::device {

class CpuBackend final : public Backend {
 public:
  // `ccl` may be null in a world of one rank.
  CpuBackend(const HostConfig& config, std::unique_ptr<CclMemory> ccl,
             std::shared_ptr<AbortSignal> abort, std::shared_ptr<Trace> trace);

  Result<Block> allocate(int32_t place, bool is_collective, uint64_t bytes,
                         uint64_t alignment) override;
  void free(int32_t place, bool is_collective, void* data, uint64_t bytes) override;
  Status clear(int32_t place, void* data, uint64_t bytes) override;

  strata_stream_t compute_stream() const override { return compute_->handle(); }
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
    return shared_->stall_nanoseconds.load(std::memory_order_relaxed);
  }
  void wake_waiters() override;

 private:
  // The latest record of an event; a new one has none and counts as passed.
  struct Record {
    std::shared_ptr<CpuQueue> queue;
    uint64_t position = 0;
  };
  using Queues = std::unordered_map<strata_stream_t, std::shared_ptr<CpuQueue>>;

  Result<std::shared_ptr<CpuQueue>> find_queue(strata_stream_t stream) const;
  Result<Record> find_record(strata_event_t event) const;
  Status run(strata_stream_t stream, CpuQueue::Work work);

  const int world_size_;
  const std::chrono::milliseconds timeout_;
  const bool use_stream_threads_;
  std::unique_ptr<CclMemory> ccl_;
  std::shared_ptr<CpuQueue::Shared> shared_;
  std::shared_ptr<CpuQueue> compute_;

  mutable std::mutex mutex_;  // of the two maps
  Queues queues_;
  std::unordered_map<strata_event_t, std::unique_ptr<Record>> events_;
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_CPU_BACKEND_H_
