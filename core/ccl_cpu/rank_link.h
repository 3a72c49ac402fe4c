// This rank's end of a communicator's control block: joining, meeting the other ranks, failing.
#ifndef STRATA_CCL_CPU_RANK_LINK_H_
#define STRATA_CCL_CPU_RANK_LINK_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strata/ccl_cpu/control_block.h"
#include "strata/ccl_cpu/failure.h"
#include "strata/ccl_cpu/shared_file.h"

namespace strata::ccl {

using Clock = std::chrono::steady_clock;

// Makes the control block of a communicator that does not exist yet. It lives until a rank of this
// process has joined, or as long as the process.
Failure make_unique_id(sdk::nccl::UniqueId* id);

// What a wait is for, in the texts of failures.
struct Occasion {
  const char* text;            // for example "joining"
  const Operation* operation;  // may be null
};

// "all_reduce #17 (4096 f32, sum)"
std::string describe(const Operation& operation);
const char* dtype_name(int32_t dtype);

struct JoinRequest {
  sdk::nccl::UniqueId id;
  uint32_t rank;
  uint32_t size;
  std::string name;  // of the communicator, for messages
  std::chrono::milliseconds timeout;
};

class RankLink {
 public:
  // Returns when all ranks have joined.
  //
  // Fails with  STRATA_E_INVALID_ARGUMENT  not an id, rank or size out of range, ranks disagree
  //             STRATA_E_IO                the maker of the id is gone or out of reach
  //             STRATA_E_TIMEOUT           the text has the ranks that are missing
  static Failure join(const JoinRequest& request, std::unique_ptr<RankLink>* out);
  // Tells peers that this rank will come to no further meeting; waits for nobody.
  ~RankLink();

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  const std::string& name() const { return name_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  Slot& slot(uint32_t rank) { return block_->slots[rank]; }
  Slot& mine() { return block_->slots[rank_]; }
  bool is_in_this_process(uint32_t rank) const;
  // Staging buffer 0 .. kStagesPerRank - 1 of a rank, kStageBytes long.
  char* stage(uint32_t rank, uint32_t index) {
    return mapping_.data() + kStagesOffset + (rank * kStagesPerRank + index) * kStageBytes;
  }

  enum class Haste {
    kPatient,  // a peer may come much later: sleep soon
    kBusy,     // peers are at work on the same thing: spin longer
  };
  // Arrives at the next meeting of the lane and waits for all ranks. False: the communicator has
  // failed. One caller at a time in each lane.
  [[nodiscard]] bool meet(Lane lane, Haste haste, const Occasion& occasion);

  // Whether anything went wrong, here or on another rank. Cheap.
  bool has_failed() const {
    return has_failed_.load(std::memory_order_relaxed) ||
           block_->failure.state.load(std::memory_order_relaxed) != 0;
  }
  // What went wrong first.
  Failure failure();
  // Records a failure, here and for all ranks, unless there is one; wakes who sleeps. Any thread.
  void fail(const Failure& failure);

 private:
  RankLink() = default;
  Failure open(const JoinRequest& request);
  Failure claim_slot();
  bool wait_for(uint32_t peer, Lane lane, uint32_t target, Haste haste, Clock::time_point start,
                const Occasion& occasion);
  bool sleep_until_reached(uint32_t peer, Lane lane, uint32_t target, Clock::time_point start,
                           const Occasion& occasion);
  Failure lost_peer(Lane lane, uint32_t target, const Occasion& occasion);
  Failure overdue(Lane lane, uint32_t target, Clock::time_point start, const Occasion& occasion);
  bool has_reached(uint32_t peer, Lane lane, uint32_t target) {
    const uint32_t reached = slot(peer).phases[lane].reached.load(std::memory_order_acquire);
    return static_cast<int32_t>(reached - target) >= 0;
  }
  bool is_dead(uint32_t peer);
  std::string name_of(uint32_t peer);
  void keep(const Failure& failure);
  void wake_everybody();

  uint32_t rank_ = 0;
  uint32_t size_ = 0;
  std::string name_;
  std::chrono::milliseconds timeout_{0};
  bool has_spare_cores_ = true;  // spinning takes no core from a peer
  Mapping mapping_;
  ControlBlock* block_ = nullptr;

  std::mutex watch_mutex_;
  std::vector<FileDescriptor> watches_;  // one pidfd a peer, opened when first waited for

  std::atomic<bool> has_failed_{false};
  std::mutex failure_mutex_;
  Failure failure_;
};

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_RANK_LINK_H_
