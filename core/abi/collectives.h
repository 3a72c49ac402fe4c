// The optional table "strata.collectives/1": a plugin's communicator, for a user's own reductions.
//
// Buffers are borrowed, on the strategy's device; work is queued in `stream` and the call returns
// before it is done. Every rank calls in the same order. Sums run in rank order.
#ifndef STRATA_ABI_COLLECTIVES_H_
#define STRATA_ABI_COLLECTIVES_H_

#include "strata/abi/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_COLLECTIVES_1 "strata.collectives/1"

typedef struct strata_collective_args {
  uint32_t struct_size;
  int32_t dtype;     // STRATA_DTYPE_*
  const void* send;  // may equal `receive` (in place) where shapes allow, as in NCCL
  void* receive;
  // Elements. all_gather: sent by each rank; reduce_scatter: received by each rank.
  uint64_t count;
  int32_t op;     // STRATA_REDUCE_*; ignored by all_gather, broadcast, barrier
  uint32_t root;  // broadcast only
  strata_stream_t stream;
} strata_collective_args_t;
#define STRATA_COLLECTIVE_ARGS_MIN_SIZE STRATA_MIN_SIZE(strata_collective_args_t, stream)

// Returns   STRATA_OK
//           STRATA_E_INVALID_ARGUMENT  dtype, op, root or a NULL buffer
//           STRATA_E_STATE             several ranks and no model attached yet
//           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
// [step, control & between-steps] [collective] [does not block]; barrier [blocks].
typedef struct strata_collectives_1 {
  uint32_t struct_size;
  uint32_t reserved;
  strata_status_t (*all_reduce)(strata_strategy_t* self, const strata_collective_args_t* args);
  strata_status_t (*all_gather)(strata_strategy_t* self, const strata_collective_args_t* args);
  strata_status_t (*reduce_scatter)(strata_strategy_t* self, const strata_collective_args_t* args);
  strata_status_t (*broadcast)(strata_strategy_t* self, const strata_collective_args_t* args);
  strata_status_t (*barrier)(strata_strategy_t* self);
} strata_collectives_1_t;

#ifdef __cplusplus
}
#endif
#endif  // STRATA_ABI_COLLECTIVES_H_
