// One collective of one rank, from the first meeting to the last.
//
// Note [Staging]. Where a rank's buffer lies in shared memory, peers read and write it in place and
// the whole message is one chunk. Where it does not, its bytes pass through staging buffers chunk
// by chunk. Buffers 0 and 1 of a rank hold in turns what it sends, 2 and 3 what it has reduced:
//
//   stage_send(0)                         meet
//   use chunk 0      stage_send(1)        meet    take chunk 0
//   use chunk 1      stage_send(2)        meet    take chunk 1 ...
//
// One meeting a chunk is enough: buffer 0 is written again (chunk 2) only after the meeting behind
// chunk 1, which no rank reaches before it has used chunk 0. Ranks may differ in which of their
// buffers are shared; all see from the operations of all which bytes are staged.
//
// Note [Staging past the caches]. Lines that one core has just written may be slower to read for
// another core than main memory is, and the writer later has to take them back. Two processes on two
// virtual cores of an EPYC, measured in turns in one run: staged messages of 1 to 16 MB ran at 1.4
// to 2.5 GB/s through the caches and at 7 to 13 past them. Small pieces stay in the caches, for the
// sake of latency.
#ifndef STRATA_CCL_CPU_COLLECTIVE_H_
#define STRATA_CCL_CPU_COLLECTIVE_H_

#include <memory>
#include <vector>

#include "strata/ccl_cpu/control_block.h"
#include "strata/ccl_cpu/rank_link.h"
#include "strata/ccl_cpu/reduce.h"
#include "strata/ccl_cpu/shared_memory.h"

namespace strata::ccl {

class Collective {
 public:
  // `send` and `receive` are this rank's own buffers.
  Collective(RankLink& link, const Operation& operation, const void* send, void* receive);

  // False: the communicator has failed; the buffers hold anything.
  [[nodiscard]] bool run();

  // What crossed to or from this rank's account; see strataCclSentBytes.
  uint64_t sent_bytes() const { return sent_bytes_; }
  // When all ranks had come.
  Clock::time_point begin() const { return begin_; }

 private:
  // A rank's buffers as this process sees them; null where they are not shared.
  struct View {
    const char* send = nullptr;
    char* receive = nullptr;
  };
  // A number of elements from `begin` on.
  struct Range {
    uint64_t begin = 0;
    uint64_t count = 0;
  };

  bool meet(RankLink::Haste haste);
  bool agree();
  bool look_up_peers();
  bool has_failed() const { return link_.has_failed(); }
  bool is_sharing_send(uint32_t rank) const { return views_[rank].send != nullptr; }
  bool is_sharing_receive(uint32_t rank) const { return views_[rank].receive != nullptr; }
  bool is_every_send_shared() const;
  bool is_every_receive_shared() const;
  Caching caching_of_message() const;
  Caching caching_of_stage(uint64_t bytes) const;

  bool all_reduce();
  void stage_for_all_reduce(uint64_t chunk);
  bool reduce_share(Range chunk, uint32_t parity);
  void take_results(Range chunk, uint32_t parity);
  Range share_of(uint32_t rank, Range chunk) const;

  bool reduce_scatter();
  void stage_for_reduce_scatter(uint64_t chunk);
  bool reduce_part(Range chunk, uint32_t parity);
  uint64_t scatter_chunk() const;

  bool spread();
  bool is_sender(uint32_t rank) const;
  bool must_stage(uint32_t sender) const;
  uint64_t place_of(uint32_t sender) const;
  void stage_for_spread(uint64_t chunk);
  bool spread_in_place();
  bool copy_big(char* target, const char* source, uint64_t bytes);

  bool reduce_big(std::vector<const void*> sources, std::vector<Target> targets, uint64_t count);
  Range chunk(uint64_t index, uint64_t elements) const;

  RankLink& link_;
  const Operation operation_;
  const char* const send_;
  char* const receive_;
  const uint32_t rank_;
  const uint32_t size_;
  const uint64_t each_;  // bytes of an element
  std::vector<View> views_;
  std::vector<std::shared_ptr<Region>> pins_;
  uint64_t sent_bytes_ = 0;
  Clock::time_point begin_{};
};

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_COLLECTIVE_H_
