// A communicator that a strategy owns: NCCL's C API, opened at run time from the library that the
// host names.
//
// The same plugin binary so runs over NVIDIA's NCCL, AMD's RCCL and Strata's own CPU libraries. All
// functions throw Error. Collectives are queued in `stream` and return before they are done; sums
// run in rank order on CPU. Every rank makes the same calls in the same order.
#ifndef STRATA_SDK_COMMUNICATOR_H_
#define STRATA_SDK_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "strata/abi/types.h"
#include "strata/sdk/host.h"

namespace strata::sdk {

class Communicator {
 public:
  // Meets the other ranks through the host's store under `name`, unique in the run. [collective]
  // [blocks] Throws STRATA_E_TIMEOUT naming the ranks that are missing where it is known.
  static std::unique_ptr<Communicator> create(strata_host_t* host, const std::string& name,
                                              uint32_t rank, uint32_t size);
  virtual ~Communicator() = default;  // communicates with nobody

  // A communicator over the ranks of the same color, ordered by key. [collective over the parent]
  // [blocks]
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;

  // receive[r * count, (r + 1) * count) = rank r's send. In place when send == receive + rank *
  // count.
  virtual void all_gather(const void* send, void* receive, uint64_t count, int32_t dtype,
                          strata_stream_t stream) = 0;
  // receive[0, count) = sum over ranks of their send[rank * count, ...). In place when receive ==
  // send + rank * count.
  virtual void reduce_scatter(const void* send, void* receive, uint64_t count, int32_t dtype,
                              strata_stream_t stream) = 0;
  // receive[0, count) = sum, min or max over ranks (STRATA_REDUCE_*). In place when send ==
  // receive.
  virtual void all_reduce(const void* send, void* receive, uint64_t count, int32_t dtype,
                          int32_t op, strata_stream_t stream) = 0;
  virtual void broadcast(const void* send, void* receive, uint64_t count, int32_t dtype,
                         uint32_t root, strata_stream_t stream) = 0;
  // Collectives between these two are issued as one.
  virtual void group_start() = 0;
  virtual void group_end() = 0;

  // Throws what went wrong in an asynchronous collective so far (STRATA_E_PEER_LOST, _TIMEOUT,
  // _ABORTED), if anything did.
  virtual void check_async_error() = 0;
  // Blocked and later collectives return within one second. Any thread, any time. Idempotent.
  virtual void abort() noexcept = 0;

  // Bytes that this rank has put on the wire so far: all_gather and reduce_scatter (N-1) x count,
  // all_reduce 2 (N-1)/N x count, broadcast count (N-1)/N, each times the element size. Also told
  // to the host as they are issued.
  virtual uint64_t sent_bytes() const = 0;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_COMMUNICATOR_H_
