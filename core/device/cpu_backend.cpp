#include "strata/device/cpu_backend.h"

#include <fmt/format.h>

#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "strata/device/cpu_kernels.h"

namespace strata::device {

Result<std::unique_ptr<Backend>> make_cpu_backend(const HostConfig& config,
                                                  std::shared_ptr<AbortSignal> abort,
                                                  std::shared_ptr<Trace> trace) {
  if (config.device.index != 0) {
    return invalid_argument(fmt::format("device: CPU {} does not exist. HINT: the CPU has index 0",
                                        config.device.index));
  }
  std::unique_ptr<CclMemory> ccl;
  if (!config.ccl_library.empty()) {
    STRATA_ASSIGN_OR_RETURN(ccl, CclMemory::open(config.ccl_library));
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(config, std::move(ccl), std::move(abort), std::move(trace)));
}

CpuBackend::CpuBackend(const HostConfig& config, std::unique_ptr<CclMemory> ccl,
                       std::shared_ptr<AbortSignal> abort, std::shared_ptr<Trace> trace)
    : world_size_(config.world.size),
      timeout_(config.timeout),
      use_stream_threads_(config.use_stream_threads),
      ccl_(std::move(ccl)),
      shared_(std::make_shared<CpuQueue::Shared>()) {
  shared_->abort = std::move(abort);
  shared_->timeout = config.timeout + kHeadStart;
  shared_->trace = std::move(trace);
  compute_ = CpuQueue::create("compute", CpuQueue::Mode::kInline, shared_);
  queues_[compute_->handle()] = compute_;
}

Status CpuBackend::close() {
  Queues queues;
  {
    const std::lock_guard lock(mutex_);
    queues = queues_;  // an abort still finds them
  }
  Status first;
  for (const auto& [stream, queue] : queues) {
    Status closed = queue->close(CpuQueue::Clock::now() + timeout_);
    if (first.ok()) first = std::move(closed);
  }
  return first;
}

Result<Backend::Block> CpuBackend::allocate(int32_t place, bool is_collective, uint64_t bytes,
                                            uint64_t alignment) {
  if (!is_collective || (ccl_ == nullptr && world_size_ == 1)) {
    return allocate_plain(bytes, alignment);
  }
  if (ccl_ == nullptr) {
    return unsupported(
        fmt::format("device: memory for collectives of {} ranks needs a communication library, and "
                    "none was given. HINT: HostConfig::ccl_library",
                    world_size_));
  }
  STRATA_ASSIGN_OR_RETURN(void* data, ccl_->allocate(bytes));
  return Block{data, false};
}

void CpuBackend::free(int32_t place, bool is_collective, void* data, uint64_t bytes) {
  if (is_collective && ccl_ != nullptr) {
    ccl_->free(data);
  } else {
    free_plain(data, bytes);
  }
}

Status CpuBackend::clear(int32_t place, void* data, uint64_t bytes) {
  std::memset(data, 0, bytes);
  return {};
}

Result<std::shared_ptr<CpuQueue>> CpuBackend::find_queue(strata_stream_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(stream);
  if (found == queues_.end()) {
    return invalid_argument(
        fmt::format("device: {} is not a stream of this host, or was destroyed", stream));
  }
  return found->second;
}

Result<CpuBackend::Record> CpuBackend::find_record(strata_event_t event) const {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    return invalid_argument(
        fmt::format("device: {} is not an event of this host, or was destroyed", event));
  }
  return *found->second;
}

Result<strata_stream_t> CpuBackend::create_stream(const std::string& name) {
  std::shared_ptr<CpuQueue> queue;
  try {
    queue = CpuQueue::create(
        name, use_stream_threads_ ? CpuQueue::Mode::kThread : CpuQueue::Mode::kInline, shared_);
  } catch (const std::system_error& error) {
    return out_of_memory(
        fmt::format("device: no thread for stream '{}': {}. HINT: ulimit -u", name, error.what()));
  }
  const std::lock_guard lock(mutex_);
  queues_[queue->handle()] = queue;
  return queue->handle();
}

Status CpuBackend::destroy_stream(strata_stream_t stream) {
  if (stream == compute_stream()) {
    return invalid_argument("device: the compute stream belongs to the host and ends with it");
  }
  STRATA_ASSIGN_OR_RETURN(std::shared_ptr<CpuQueue> queue, find_queue(stream));
  const Status closed = queue->close(CpuQueue::Clock::now() + timeout_);
  const std::lock_guard lock(mutex_);
  queues_.erase(stream);
  return closed;
}

Result<strata_event_t> CpuBackend::create_event() {
  auto record = std::make_unique<Record>();
  const strata_event_t event = record.get();
  const std::lock_guard lock(mutex_);
  events_[event] = std::move(record);
  return event;
}

void CpuBackend::destroy_event(strata_event_t event) {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

Status CpuBackend::record(strata_event_t event, strata_stream_t stream) {
  STRATA_ASSIGN_OR_RETURN(std::shared_ptr<CpuQueue> queue, find_queue(stream));
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    return invalid_argument(
        fmt::format("device: {} is not an event of this host, or was destroyed", event));
  }
  found->second->position = queue->position();
  found->second->queue = std::move(queue);
  return {};
}

Status CpuBackend::wait(strata_stream_t stream, strata_event_t event) {
  STRATA_ASSIGN_OR_RETURN(std::shared_ptr<CpuQueue> queue, find_queue(stream));
  STRATA_ASSIGN_OR_RETURN(const Record record, find_record(event));
  if (record.queue == nullptr) return {};
  return queue->push_wait(record.queue, record.position);
}

Result<bool> CpuBackend::query(strata_event_t event) {
  STRATA_ASSIGN_OR_RETURN(const Record record, find_record(event));
  if (record.queue == nullptr) return true;
  if (!record.queue->has_passed(record.position)) return false;
  STRATA_RETURN_IF_ERROR(record.queue->failure());
  return true;
}

Status CpuBackend::synchronize(strata_event_t event, const std::string& what,
                               std::chrono::milliseconds timeout) {
  STRATA_ASSIGN_OR_RETURN(const Record record, find_record(event));
  if (record.queue == nullptr) return {};
  return record.queue->wait_until_passed(record.position, CpuQueue::Clock::now() + timeout, what);
}

Status CpuBackend::run(strata_stream_t stream, CpuQueue::Work work) {
  STRATA_ASSIGN_OR_RETURN(const std::shared_ptr<CpuQueue> queue, find_queue(stream));
  return queue->push(std::move(work));
}

Status CpuBackend::copy(strata_stream_t stream, void* dst, const void* src, uint64_t bytes) {
  return run(stream, [=] { std::memcpy(dst, src, bytes); });
}

Status CpuBackend::cast(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                        int32_t src_dtype, uint64_t count) {
  return run(stream, [=] { cast_elements(dst, dst_dtype, src, src_dtype, count); });
}

Status CpuBackend::add(strata_stream_t stream, void* dst, int32_t dst_dtype, const void* src,
                       int32_t src_dtype, uint64_t count) {
  return run(stream, [=] { add_elements(dst, dst_dtype, src, src_dtype, count); });
}

Status CpuBackend::scale(strata_stream_t stream, void* dst, int32_t dtype, float factor,
                         uint64_t count) {
  return run(stream, [=] { scale_elements(dst, dtype, factor, count); });
}

Status CpuBackend::zero(strata_stream_t stream, void* dst, uint64_t bytes) {
  return run(stream, [=] { std::memset(dst, 0, bytes); });
}

void CpuBackend::wake_waiters() {
  std::vector<std::shared_ptr<CpuQueue>> queues;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, queue] : queues_) queues.push_back(queue);
  }
  for (const std::shared_ptr<CpuQueue>& queue : queues) queue->wake_waiters();
}

}  // namespace strata::device
