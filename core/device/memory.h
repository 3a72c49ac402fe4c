// The accounting allocator: every byte by place and tag, under the limits of the host.
#ifndef STRATA_DEVICE_MEMORY_H_
#define STRATA_DEVICE_MEMORY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "strata/device/backend.h"
#include "strata/device/host.h"

namespace strata::device {

class Memory {
 public:
  // `backend` outlives this.
  Memory(Backend& backend, uint64_t device_limit, uint64_t host_limit);
  // Gives back what nobody freed, with a warning that names it.
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Result<void*> allocate(const MemoryRequest& request);
  Status free(void* memory);
  void count_external(int32_t place, int32_t tag, int64_t delta);
  MemoryStats stats() const;
  // The counters of one place; kInvalidArgument if there is no such place.
  Result<PlaceStats> place_stats(int32_t place) const;
  void reset_peaks();
  // Gives nothing back at the end: somebody still uses it.
  void abandon();

 private:
  struct Block {
    int32_t place = 0;
    int32_t tag = 0;
    bool is_collective = false;
    uint64_t bytes = 0;
    std::string label;
  };
  struct Freed {
    const void* data = nullptr;
    std::string label;
  };
  static constexpr size_t kFreedRemembered = 64;

  static Status check(const MemoryRequest& request);
  PlaceStats& place(int32_t place);
  const PlaceStats& place(int32_t place) const;
  uint64_t use_against_limit(int32_t place) const;
  Status refuse(const MemoryRequest& request, const std::string& why) const;
  void count(int32_t place, int32_t tag, int64_t delta);
  void remember_freed(const void* data, std::string label);

  Backend& backend_;
  mutable std::mutex mutex_;
  MemoryStats stats_;
  std::unordered_map<const void*, Block> blocks_;
  std::deque<Freed> freed_;  // the last few, to tell a double free from a foreign pointer
  std::array<uint64_t, 4> external_{};  // by place: counted, but not against limits
};

}  // namespace strata::device

#endif  // STRATA_DEVICE_MEMORY_H_
