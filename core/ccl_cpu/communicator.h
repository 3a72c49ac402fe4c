// A communicator behind an ncclComm_t: collectives in the order in which they were issued, on
// whatever queue they were issued to.
#ifndef STRATA_CCL_CPU_COMMUNICATOR_H_
#define STRATA_CCL_CPU_COMMUNICATOR_H_

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "strata/ccl_cpu/collective.h"
#include "strata/ccl_cpu/rank_link.h"

namespace strata::ccl {

// A collective with this rank's buffers.
struct Call {
  Operation operation{};  // without sequence and addresses
  const void* send = nullptr;
  void* receive = nullptr;
  strata_cpu_queue_t* queue = nullptr;  // null: the calling thread
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  static Failure join(const JoinRequest& request, std::shared_ptr<Communicator>* out);

  uint32_t rank() const { return link_->rank(); }
  uint32_t size() const { return link_->size(); }
  uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  Failure failure() { return link_->failure(); }

  // What can be said about a call at once: values, and whether the communicator has failed.
  Failure check(const Call& call);
  // Queues a call; it goes wrong, if it does, in failure(). REQUIRES: check(call) was all right.
  void issue(const Call& call);

  // A communicator of the ranks with the same color, ordered by key, then by rank; null for
  // ncclConfig's NOCOLOR. [collective] [blocks]
  Failure split(int color, int key, const char* name, std::shared_ptr<Communicator>* out);

  // Any thread.
  void abort();

 private:
  struct Job;
  explicit Communicator(std::unique_ptr<RankLink> link) : link_(std::move(link)) {}
  static void run_job(void* argument);
  void run(Job& job);
  bool wait_for_turn(const Operation& operation);
  void end_turn();
  void hold_for_link(const Collective& collective);

  std::unique_ptr<RankLink> link_;
  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> sent_bytes_{0};

  std::mutex turn_mutex_;
  std::condition_variable turn_changed_;
  uint64_t turn_ = 1;  // sequence of the collective that may run

  std::mutex split_mutex_;
};

// See strataCclSetLink.
void set_link(uint64_t bytes_per_second);

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_COMMUNICATOR_H_
