#include "strata/train/activation_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "strata/base/check.h"

namespace strata::train {
namespace {

// Whom to tell. Null: nobody counts.
std::atomic<device::Host*> counting_host{nullptr};

// In front of each block; as long as a cache line, so that the block keeps its alignment.
struct alignas(64) Header {
  size_t bytes;
  device::Host* host;  // who counted it, if anybody
};

void count(device::Host* host, int64_t bytes) {
  host->count_external(STRATA_PLACE_DEVICE, STRATA_TAG_ACTIVATIONS, bytes);
}

void free_block(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  // A host that is gone by now has nothing left to count.
  if (header->host != nullptr && header->host == counting_host.load(std::memory_order_acquire)) {
    count(header->host, -static_cast<int64_t>(header->bytes));
  }
  std::free(header);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = nullptr;
    if (bytes > 0) {
      const size_t whole = (bytes + 2 * sizeof(Header) - 1) / sizeof(Header) * sizeof(Header);
      void* memory = std::aligned_alloc(sizeof(Header), whole);
      TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "tried to allocate ", bytes,
                       " bytes for activations; the machine has no memory left. HINT: a smaller "
                       "batch, or --activation-checkpointing");
      auto* header = static_cast<Header*>(memory);
      header->bytes = bytes;
      header->host = counting_host.load(std::memory_order_acquire);
      if (header->host != nullptr) count(header->host, static_cast<int64_t>(bytes));
      block = header + 1;
    }
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

// Stays installed once it is: blocks of ours must find our deleter.
void install_allocator() {
  static CountingAllocator* const allocator = [] {
    auto* made = new CountingAllocator;
    c10::SetCPUAllocator(made, 1);
    return made;
  }();
  (void)allocator;
}

}  // namespace

ActivationMemory::ActivationMemory(device::Host& host) {
  install_allocator();
  device::Host* nobody = nullptr;
  STRATA_CHECK(counting_host.compare_exchange_strong(nobody, &host)) << "two at a time";
}

ActivationMemory::~ActivationMemory() { counting_host.store(nullptr); }

}  // namespace strata::train
