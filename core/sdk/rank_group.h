// The ranks of one strategy: their communicator, the side stream on which collectives run, and what
// every strategy needs of both.
#ifndef STRATA_SDK_RANK_GROUP_H_
#define STRATA_SDK_RANK_GROUP_H_

#include <atomic>
#include <memory>
#include <string>

#include "strata/abi/strategy.h"
#include "strata/sdk/communicator.h"
#include "strata/sdk/host.h"

namespace strata::sdk {

class RankGroup {
 public:
  // Meets the other ranks. In a world of one there is no communicator and nothing here waits.
  // [collective] With `overlap` collectives run on a stream of their own, else on the compute
  // stream.
  RankGroup(strata_host_t* host, const std::string& name, uint32_t rank, uint32_t size,
            bool overlap);

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  // REQUIRES: not is_alone().
  Communicator& communicator() { return *communicator_; }
  Communicator* communicator_or_null() { return communicator_.get(); }
  // Where collectives are queued.
  strata_stream_t stream() const { return stream_; }

  // Throws Error naming the first line in which this rank's text differs from rank 0's.
  // [collective]
  void agree(const std::string& text);
  // As the slot all_reduce_small. [collective]
  void all_reduce_small(const strata_small_reduction_t& reduction);
  // Throws what went wrong in collectives so far, if anything did.
  void check();
  // Waits until the stream is empty.
  void synchronize(const char* what);
  // Any thread.
  void abort() noexcept;

 private:
  strata_host_t* host_;
  std::string name_;
  uint32_t rank_;
  uint32_t size_;
  std::unique_ptr<Communicator> communicator_;
  Stream side_stream_;
  strata_stream_t stream_ = nullptr;
  Buffer small_;  // collective memory for small reductions
  Event small_done_;
  Event drained_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_RANK_GROUP_H_
