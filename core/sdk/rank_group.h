// The ranks of one strategy: their communicator, the stream on which collectives run, and what
// every strategy needs of both.
#ifndef STRATA_SDK_RANK_GROUP_H_
#define STRATA_SDK_RANK_GROUP_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"
#include "strata/sdk/communicator.h"
#include "strata/sdk/host.h"

namespace strata::sdk {

// Ends the collectives of one instance, from any thread and in any state: with a model or without,
// also while the ranks still meet. Lives as long as the strategy.
class AbortSwitch {
 public:
  // Blocked collectives return within one second; check() throws from now on. Idempotent: the first
  // reason stays.
  void trip(const char* reason) noexcept;
  // Throws Error(STRATA_E_ABORTED) with the reason, once tripped.
  void check() const;
  // Adds one that trip() aborts; behind trip() it is aborted at once.
  void add(Communicator* communicator);
  // trip() aborts nobody from now on. Returns when no other thread uses a communicator.
  void forget_communicators() noexcept;

 private:
  mutable std::mutex mutex_;
  bool was_tripped_ = false;
  std::string reason_;
  std::vector<Communicator*> communicators_;
};

struct RankGroupConfig {
  // Takes rank, world, device and host of an instance.
  RankGroupConfig(const strata_create_args_t& args, std::string strategy, bool overlaps)
      : host(args.host),
        name(std::move(strategy)),
        rank(args.world->rank),
        size(args.world->size),
        is_on_cpu(args.device.type == STRATA_DEVICE_CPU),
        overlaps_compute(overlaps) {}

  strata_host_t* host;
  std::string name;  // for the communicator and for messages, for example "fsdp"
  uint32_t rank;
  uint32_t size;
  bool is_on_cpu;
  // Collectives run on a stream of their own; otherwise on the compute stream.
  bool overlaps_compute;
};

class RankGroup {
 public:
  // Meets the other ranks. In a world of one there is no communicator and nothing here waits.
  // [collective] [blocks] Throws STRATA_E_TIMEOUT naming the ranks that did not come,
  // STRATA_E_ABORTED. `abort` outlives the group.
  RankGroup(const RankGroupConfig& config, AbortSwitch& abort);
  // Communicates with nobody. What is still running is aborted and waited for, so that what is
  // destroyed behind this group is in nobody's use.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  uint32_t rank() const { return config_.rank; }
  uint32_t size() const { return config_.size; }
  bool is_alone() const { return config_.size == 1; }
  // REQUIRES: not is_alone().
  Communicator& communicator() { return *communicator_; }
  Communicator* communicator_or_null() { return communicator_.get(); }
  // A communicator over the ranks of the same color, in rank order. The group owns it and checks,
  // aborts and ends it with its own. REQUIRES: not is_alone(). [collective] [blocks]
  Communicator& split(int color);
  // Where collectives are queued.
  strata_stream_t stream() const { return stream_; }

  // Runs `body`, which communicates with nobody, on every rank. If it throws on any, this throws on
  // all: its own error there, the one of the lowest failing rank elsewhere. [collective] [blocks]
  void together(const std::function<void()>& body);
  // Throws on every rank, naming the first line in which a rank's text differs from rank 0's.
  // [collective] [blocks]
  void agree(const std::string& text);
  // As the slot all_reduce_small. [collective] [blocks]
  void all_reduce_small(const strata_small_reduction_t& reduction);

  // Throws what went wrong in collectives so far, or that abort() was called.
  void check();
  // The compute stream waits for all collectives queued so far.
  void hold_compute();
  // Blocks until all collectives queued so far are done, then check(). `what` names the wait.
  void synchronize(const char* what);

 private:
  void await_all_ranks();
  std::string missing_ranks();
  void end() noexcept;
  void abort_all() noexcept;

  const RankGroupConfig config_;
  AbortSwitch& abort_;
  std::string name_;  // of this attach, unique in the run
  int64_t rounds_ = 0;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<Communicator>> parts_;
  Buffer small_;   // where small reductions run
  Buffer pinned_;  // their way from and to the host's memory, where that is not the device's
  Event small_done_;
  Event drained_;
  Stream side_stream_;
  strata_stream_t stream_ = nullptr;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_RANK_GROUP_H_
