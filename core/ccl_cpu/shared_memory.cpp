#include "strata/ccl_cpu/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace strata::ccl {
namespace {

constexpr uint64_t kRegionMagic = 0x5354524154410002;
constexpr size_t kHeaderBytes = 4096;  // keeps the data page-aligned

struct RegionHeader {
  uint64_t magic;
  uint64_t id;
  std::atomic<uint32_t> is_in_use;
};

bool has_ended(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

}  // namespace

class Region {
 public:
  Region(FileDescriptor file, Mapping mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}

  RegionHeader& header() { return *reinterpret_cast<RegionHeader*>(mapping_.data()); }
  char* data() const { return mapping_.data() + kHeaderBytes; }
  size_t bytes() const { return mapping_.bytes() - kHeaderBytes; }
  int fd() const { return file_.get(); }
  bool is_in_use() { return header().is_in_use.load(std::memory_order_acquire) != 0; }
  bool contains(uint64_t offset, size_t wanted) const {
    return offset <= bytes() && wanted <= bytes() - offset;
  }

  // Gives the pages back to the system. Who still has them mapped reads zero bytes.
  void retire() {
    header().is_in_use.store(0, std::memory_order_release);
    ::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kHeaderBytes,
                static_cast<off_t>(bytes()));
  }

 private:
  FileDescriptor file_;  // open in the owner's process only
  Mapping mapping_;
};

SharedMemory& SharedMemory::of_this_process() {
  static auto* memory = new SharedMemory;  // outlives threads that are still running at exit
  return *memory;
}

Failure SharedMemory::allocate(size_t bytes, void** out) {
  *out = nullptr;
  const size_t pages = bytes / 4096 + (bytes % 4096 != 0 || bytes == 0);
  if (pages > (SIZE_MAX >> 14)) {
    return {STRATA_E_OUT_OF_MEMORY, "allocating " + std::to_string(bytes) + " shared bytes"};
  }
  const size_t total = kHeaderBytes + pages * 4096;
  FileDescriptor file;
  Mapping mapping;
  if (Failure f = make_shared_file("strata-shared", total, &file); f.happened()) return f;
  if (Failure f = Mapping::map(file, total, &mapping); f.happened()) return f;
  auto region = std::make_shared<Region>(std::move(file), std::move(mapping));
  std::unique_lock lock(own_mutex_);
  RegionHeader& header = region->header();
  header.magic = kRegionMagic;
  header.id = next_id_++;
  header.is_in_use.store(1, std::memory_order_release);
  own_by_id_[header.id] = region;
  own_[region->data()] = region;
  *out = region->data();
  return {};
}

bool SharedMemory::free(void* pointer) {
  std::shared_ptr<Region> region;
  {
    std::unique_lock lock(own_mutex_);
    const auto found = own_.find(static_cast<char*>(pointer));
    if (found == own_.end()) return false;
    region = found->second;
    own_by_id_.erase(region->header().id);
    own_.erase(found);
  }
  region->retire();
  return true;
}

SharedRange SharedMemory::find(const void* pointer, size_t bytes) {
  std::shared_lock lock(own_mutex_);
  auto after = own_.upper_bound(static_cast<const char*>(pointer));
  if (after == own_.begin()) return {};
  const std::shared_ptr<Region>& region = std::prev(after)->second;
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(pointer) - region->data());
  if (!region->contains(offset, bytes)) return {};
  return {{region->header().id, offset, region->fd(), 0}, region};
}

Failure SharedMemory::map(pid_t owner, const SharedAddress& address, size_t bytes, char** data,
                          std::shared_ptr<Region>* pin) {
  const Failure freed{STRATA_E_STATE, "a buffer of process " + std::to_string(owner) +
                                          " was freed during a collective. HINT: wait for the "
                                          "stream before ncclMemFree"};
  std::shared_ptr<Region> region;
  if (owner == ::getpid()) {
    std::shared_lock lock(own_mutex_);
    const auto found = own_by_id_.find(address.region);
    if (found == own_by_id_.end()) return freed;
    region = found->second;
  } else {
    std::lock_guard lock(peer_mutex_);
    std::shared_ptr<Region>& known = peers_[{owner, address.region}];
    if (known == nullptr) {
      FileDescriptor file;
      Mapping mapping;
      size_t total = 0;
      Failure failure = open_shared_file(owner, address.fd, &file, &total);
      if (!failure.happened() && total <= kHeaderBytes) failure = freed;
      if (!failure.happened()) failure = Mapping::map(file, total, &mapping);
      if (failure.happened()) {
        peers_.erase({owner, address.region});
        return failure;
      }
      region = std::make_shared<Region>(FileDescriptor(), std::move(mapping));
      if (region->header().magic != kRegionMagic || region->header().id != address.region) {
        peers_.erase({owner, address.region});
        return freed;
      }
      known = region;
      forget_freed_regions();
    }
    region = region == nullptr ? known : region;
  }
  if (!region->contains(address.offset, bytes)) return freed;
  *data = region->data() + address.offset;
  *pin = std::move(region);
  return {};
}

void SharedMemory::forget_freed_regions() {
  std::erase_if(peers_, [](const auto& entry) {
    return !entry.second->is_in_use() || has_ended(entry.first.first);
  });
}

size_t SharedMemory::mapped_regions() {
  std::lock_guard lock(peer_mutex_);
  forget_freed_regions();
  return peers_.size();
}

}  // namespace strata::ccl
