// Memory that peers read and write in place: ncclMemAlloc's regions, and peers' regions mapped
// here.
//
// A region is a shared file whose first page says whether it is still in use. Peers map a region
// when they first need it and keep it; freeing gives the memory back to the system at once, even
// where peers still have the region mapped, and they unmap it when they next map another.
#ifndef STRATA_CCL_CPU_SHARED_MEMORY_H_
#define STRATA_CCL_CPU_SHARED_MEMORY_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "strata/ccl_cpu/control_block.h"
#include "strata/ccl_cpu/failure.h"
#include "strata/ccl_cpu/shared_file.h"

namespace strata::ccl {

class Region;

// A range inside a region, which stays mapped as long as `pin` lives.
struct SharedRange {
  SharedAddress address{};  // region 0: the range is in none
  std::shared_ptr<Region> pin;
};

class SharedMemory {
 public:
  static SharedMemory& of_this_process();

  // Aligned to 4096. 0 bytes give a pointer that can be freed.
  Failure allocate(size_t bytes, void** out);
  // False: not a pointer from allocate().
  bool free(void* pointer);

  // Where [pointer, pointer + bytes) lies.
  SharedRange find(const void* pointer, size_t bytes);
  // The range at `address` of process `owner`, which may be this one.
  Failure map(pid_t owner, const SharedAddress& address, size_t bytes, char** data,
              std::shared_ptr<Region>* pin);

  // Regions of peers that are mapped here.
  size_t mapped_regions();

 private:
  using PeerKey = std::pair<pid_t, uint64_t>;
  void forget_freed_regions();

  std::shared_mutex own_mutex_;
  std::map<const char*, std::shared_ptr<Region>> own_;  // by start of data
  std::map<uint64_t, std::shared_ptr<Region>> own_by_id_;
  uint64_t next_id_ = random_number();

  std::mutex peer_mutex_;
  std::map<PeerKey, std::shared_ptr<Region>> peers_;
};

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_SHARED_MEMORY_H_
