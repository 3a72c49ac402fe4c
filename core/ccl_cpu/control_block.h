// The memory that the ranks of one communicator share: who they are, how far each has come, what it
// is doing, what went wrong, and the staging buffers.
//
//   | ControlBlock: failure, slot of rank 0, slot of rank 1, ... | staging of rank 0 | of rank 1
//   |...
//
// Note [Phases]. Every rank counts in its slot how often it has arrived at a meeting of all ranks.
// All ranks make the same meetings in the same order, so "rank 1 has reached phase 7" says all. A
// rank writes only its own slot; a peer reads it after a meeting, and it is not written again
// before the next but one.
#ifndef STRATA_CCL_CPU_CONTROL_BLOCK_H_
#define STRATA_CCL_CPU_CONTROL_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "strata/sdk/nccl_api.h"

namespace strata::ccl {

inline constexpr uint64_t kControlMagic = 0x5354524154410001;  // changes with the layout
inline constexpr uint32_t kMostRanks = 256;
// One staging buffer: two for what a rank sends and two for what it has reduced, in turns. Small
// enough that a chunk stays in the caches between the copy in and the copy out.
inline constexpr size_t kStageBytes = 256 << 10;
inline constexpr size_t kStagesPerRank = 4;

enum class Kind : uint32_t { kAllGather = 1, kReduceScatter, kAllReduce, kBroadcast };

// A place in memory of ncclMemAlloc.
struct SharedAddress {
  uint64_t region;  // 0: not in such memory
  uint64_t offset;
  int32_t fd;  // in the process that owns it
  uint32_t reserved;
};

// A collective, as one rank was asked for it.
struct Operation {
  Kind kind;
  int32_t dtype;  // STRATA_DTYPE_*
  int32_t op;     // STRATA_REDUCE_*; 0 where nothing is reduced
  uint32_t root;
  uint64_t count;     // as in NCCL's function
  uint64_t sequence;  // 1, 2, ... within the communicator
  SharedAddress send;
  SharedAddress receive;
};

// How often a rank has arrived; see Note [Phases].
struct alignas(64) Phase {
  std::atomic<uint32_t> reached;   // a futex
  std::atomic<uint32_t> sleepers;  // ranks that sleep until `reached` moves
};

// Collectives and the making of communicators meet apart, so that a split may begin while
// collectives are still queued.
enum Lane : uint32_t { kCollectives = 0, kControl = 1, kLanes = 2 };

struct alignas(128) Slot {
  std::atomic<int32_t> pid;  // 0: nobody has joined yet
  std::atomic<uint32_t> has_left;
  Phase phases[kLanes];
  alignas(64) Operation operation;
  int32_t split_color;
  int32_t split_key;
  uint32_t split_failed;  // the leader could not make the id
  sdk::nccl::UniqueId split_id;
};

// The first failure of the communicator, for all ranks.
struct SharedFailure {
  std::atomic<uint32_t> state;  // 0: none, 1: being written, 2: readable
  int32_t code;
  uint32_t rank;  // who found it
  char text[1000];
};

struct ControlBlock {
  uint64_t magic;
  uint64_t nonce;
  std::atomic<uint32_t> size;  // ranks; 0 until the first has joined
  SharedFailure failure;
  Slot slots[kMostRanks];
};

inline constexpr size_t kStagesOffset = (sizeof(ControlBlock) + 4095) / 4096 * 4096;
constexpr size_t control_bytes(uint32_t ranks) {
  return kStagesOffset + ranks * kStagesPerRank * kStageBytes;
}

// What an ncclUniqueId holds.
struct IdContent {
  uint64_t magic;
  uint64_t nonce;
  int32_t pid;
  int32_t fd;
};
static_assert(sizeof(IdContent) <= sdk::nccl::kUniqueIdBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_CONTROL_BLOCK_H_
