#include "strata/device/cpu_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "strata/base/check.h"
#include "strata/base/log.h"

namespace strata::device {
namespace {

constexpr uint64_t kMapFrom = uint64_t{1} << 20;  // smaller blocks come from the heap
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// A mapping that begins at a multiple of the huge page, so that all of it but the tail can be huge.
Result<Backend::Block> map_block(uint64_t bytes) {
  const uint64_t length = round_up(bytes, kPage);
  const uint64_t slack = length >= kHugePage ? kHugePage - kPage : 0;
  void* mapped = mmap(nullptr, length + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return out_of_memory(fmt::format("but the machine gives no more ({})", std::strerror(errno)));
  }
  auto* begin = static_cast<char*>(mapped);
  if (slack == 0) return Backend::Block{begin, true};
  char* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(begin), kHugePage));
  const auto before = static_cast<uint64_t>(aligned - begin);
  if (before > 0) munmap(begin, before);
  if (slack > before) munmap(aligned + length, slack - before);
  madvise(aligned, length, MADV_HUGEPAGE);  // a wish: systems without huge pages say no
  return Backend::Block{aligned, true};
}

}  // namespace

Result<Backend::Block> allocate_plain(uint64_t bytes, uint64_t alignment) {
  if (bytes > UINT64_MAX / 2) return out_of_memory("but no machine has that much");
  if (bytes >= kMapFrom) return map_block(bytes);
  void* data = std::aligned_alloc(alignment, round_up(bytes, alignment));
  if (data == nullptr) return out_of_memory("but the machine gives no more");
  return Backend::Block{data, false};
}

void free_plain(void* data, uint64_t bytes) {
  if (bytes < kMapFrom) {
    std::free(data);
    return;
  }
  STRATA_CHECK(munmap(data, round_up(bytes, kPage)) == 0) << std::strerror(errno);
}

Result<std::unique_ptr<CclMemory>> CclMemory::open(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return not_found(
        fmt::format("device: the communication library '{}' cannot be opened: {}. "
                    "HINT: it is built beside the program, in lib/strata",
                    library, dlerror()));
  }
  auto opened = std::make_unique<CclMemory>();
  opened->library_ = library;
  opened->allocate_ = reinterpret_cast<AllocateFunction>(dlsym(handle, "ncclMemAlloc"));
  opened->free_ = reinterpret_cast<FreeFunction>(dlsym(handle, "ncclMemFree"));
  opened->last_error_ =
      reinterpret_cast<LastErrorFunction>(dlsym(handle, "ncclGetLastError"));  // may be absent
  if (opened->allocate_ == nullptr || opened->free_ == nullptr) {
    return unsupported(fmt::format(
        "device: '{}' has no ncclMemAlloc and ncclMemFree, so it is not a communication library "
        "that Strata can use. HINT: NCCL 2.19 or later",
        library));
  }
  return opened;
}

Result<void*> CclMemory::allocate(uint64_t bytes) const {
  void* data = nullptr;
  const int result = allocate_(&data, bytes);
  if (result != 0 || data == nullptr) {
    const char* why = last_error_ == nullptr ? nullptr : last_error_(nullptr);
    return out_of_memory(fmt::format("but ncclMemAlloc of '{}' failed with {}{}", library_, result,
                                     why == nullptr ? "" : std::string(": ") + why));
  }
  if (reinterpret_cast<uintptr_t>(data) % kPage != 0) {
    free_(data);
    return internal_error(fmt::format("device: ncclMemAlloc of '{}' gave {}, not aligned to {}",
                                      library_, data, kPage));
  }
  return data;
}

void CclMemory::free(void* data) const {
  if (const int result = free_(data); result != 0) {
    log::error("device: ncclMemFree of '{}' failed with {} for {}", library_, result, data);
  }
}

}  // namespace strata::device
