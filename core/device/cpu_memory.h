// Where the bytes of a CPU rank come from: the heap, fresh mappings, or the communication library.
#ifndef STRATA_DEVICE_CPU_MEMORY_H_
#define STRATA_DEVICE_CPU_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "strata/device/backend.h"

namespace strata::device {

// ncclMemAlloc and ncclMemFree of a library that speaks NCCL's C API, opened at run time and never
// closed.
class CclMemory {
 public:
  // kNotFound: the library cannot be opened; kUnsupported: it lacks one of the two functions.
  static Result<std::unique_ptr<CclMemory>> open(const std::string& library);

  // At least page-aligned.
  Result<void*> allocate(uint64_t bytes) const;
  void free(void* data) const;

 private:
  using AllocateFunction = int (*)(void** data, size_t bytes);
  using FreeFunction = int (*)(void* data);
  using LastErrorFunction = const char* (*)(void* comm);
  std::string library_;
  AllocateFunction allocate_ = nullptr;
  FreeFunction free_ = nullptr;
  LastErrorFunction last_error_ = nullptr;
};

// Plain memory. Large blocks are mappings of their own, in huge pages where the system has them, so
// that freeing gives them back to the system; small ones come from the heap.
Result<Backend::Block> allocate_plain(uint64_t bytes, uint64_t alignment);
void free_plain(void* data, uint64_t bytes);

}  // namespace strata::device

#endif  // STRATA_DEVICE_CPU_MEMORY_H_
