// What the host lends to plugins: memory, streams, kernels, a store, communication, log, trace,
// threads.
//
// Every function takes the `strata_host_t*` that the plugin got in create(): one per rank and
// instance, so that several ranks can live in one process as threads, and several models on one
// rank. Tables are fetched once, through hello->get_table(id). Nothing unwinds out of any of these
// functions; a failing one has already written its text to the error sink of the calling thread.
#ifndef STRATA_ABI_HOST_H_
#define STRATA_ABI_HOST_H_

#include "strata/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// One rank's host. Opaque; valid from create() until destroy() of the strategy that got it.
typedef struct strata_host strata_host_t;

// ---- strata.host.memory/1 -----------------------------------------------------------------------
#define STRATA_HOST_MEMORY_1 "strata.host.memory/1"

// The memory is used as a send or receive buffer of collectives: on CPU peers can read it in place
// (the communicator's ncclMemAlloc); on CUDA it is registered with NCCL where that helps. Without
// it collectives still work, through staging.
#define STRATA_MEMORY_COLLECTIVE UINT32_C(1)
// Filled with zero bytes before alloc returns.
#define STRATA_MEMORY_ZEROED UINT32_C(2)

typedef struct strata_memory_request {
  uint32_t struct_size;
  int32_t place;       // STRATA_PLACE_*
  int32_t tag;         // STRATA_TAG_*
  uint32_t flags;      // STRATA_MEMORY_*
  uint64_t bytes;      // 0 is legal: the result is then NULL and needs no free
  uint64_t alignment;  // power of two, at most 4096; 0 means 256
  const char* label;   // for out-of-memory texts, for example "fsdp ring slot 2"; may be NULL
} strata_memory_request_t;
#define STRATA_MEMORY_REQUEST_MIN_SIZE STRATA_MIN_SIZE(strata_memory_request_t, label)

// Bytes in use now and at most so far, by tag, in one place.
typedef struct strata_memory_stats {
  uint32_t struct_size;
  int32_t place;  // in: STRATA_PLACE_*
  uint64_t used[STRATA_TAG_COUNT];
  uint64_t peak[STRATA_TAG_COUNT];
  uint64_t used_total;
  uint64_t peak_total;  // the largest sum, which is not the sum of the largest
  uint64_t limit;       // 0: none
} strata_memory_stats_t;
#define STRATA_MEMORY_STATS_MIN_SIZE STRATA_MIN_SIZE(strata_memory_stats_t, limit)

typedef struct strata_host_memory_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // Allocates, counted under `tag`. The address stays the same until free.
  //
  // Returns   STRATA_OK
  //           STRATA_E_INVALID_ARGUMENT  place, tag or alignment
  //           STRATA_E_OUT_OF_MEMORY     the text has limit, use by tag and request
  // On error  *out is NULL; nothing is counted.
  // [any] [local] [blocks]
  strata_status_t (*alloc)(strata_host_t* host, const strata_memory_request_t* request, void** out);
  // Gives back what alloc returned; NULL is legal. The caller makes sure that no stream still uses
  // it. [any] [local] [blocks]
  void (*free)(strata_host_t* host, void* memory);
  // Reads the counters of one place.
  // [any] [local] [does not block]
  strata_status_t (*stats)(strata_host_t* host, strata_memory_stats_t* stats);
} strata_host_memory_1_t;

// ---- strata.host.streams/1 ----------------------------------------------------------------------
#define STRATA_HOST_STREAMS_1 "strata.host.streams/1"

typedef struct strata_host_streams_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // The stream on which the model computes. On CPU its work runs at once, in the calling thread.
  // [any] [local] [does not block]
  strata_stream_t (*compute)(strata_host_t* host);
  // A side stream, for example for communication. `name` shows up in traces.
  // Returns   STRATA_OK, STRATA_E_OUT_OF_MEMORY
  // [control] [local] [blocks]
  strata_status_t (*create)(strata_host_t* host, const char* name, strata_stream_t* out);
  // Waits for the work of the stream, then ends it.
  // [control] [local] [blocks]
  void (*destroy)(strata_host_t* host, strata_stream_t stream);
  // An event; a new one counts as passed.
  // [any] [local] [does not block]
  strata_status_t (*create_event)(strata_host_t* host, strata_event_t* out);
  // [any] [local] [does not block]
  void (*destroy_event)(strata_host_t* host, strata_event_t event);
  // The event passes when all work queued in `stream` so far is done. Recording again re-arms it.
  // [any] [local] [does not block]
  strata_status_t (*record)(strata_host_t* host, strata_event_t event, strata_stream_t stream);
  // Work queued in `stream` from now on waits for the latest record of `event`. On the CPU compute
  // stream this blocks the caller, under the host's deadline.
  // Returns   STRATA_OK, STRATA_E_TIMEOUT, STRATA_E_ABORTED
  // [step] [local] [blocks on CPU compute only]
  strata_status_t (*wait)(strata_host_t* host, strata_stream_t stream, strata_event_t event);
  // STRATA_OK and *passed = 1 or 0.
  // [any] [local] [does not block]
  strata_status_t (*query)(strata_host_t* host, strata_event_t event, int32_t* passed);
  // Blocks the caller until the event has passed. `timeout_ms` 0 means the host's deadline; `what`
  // names the wait in the text of a time-out, for example "the reduction of unit 'block.3'".
  // Returns   STRATA_OK, STRATA_E_TIMEOUT, STRATA_E_ABORTED
  // [any] [local] [blocks]
  strata_status_t (*synchronize)(strata_host_t* host, strata_event_t event, uint64_t timeout_ms,
                                 const char* what);
} strata_host_streams_1_t;

// ---- strata.host.kernels/1 ----------------------------------------------------------------------
#define STRATA_HOST_KERNELS_1 "strata.host.kernels/1"

// Elementwise work on the device, queued in a stream. `count` counts elements. Places may differ
// (pinned to device).
typedef struct strata_host_kernels_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // dst = src, `bytes` bytes; the ranges must not overlap.
  // [step] [local] [does not block]
  strata_status_t (*copy)(strata_host_t* host, strata_stream_t stream, void* dst, const void* src,
                          uint64_t bytes);
  // dst = src in another dtype (F32, BF16, F16 each way), rounded to nearest even.
  // Returns   STRATA_OK
  //           STRATA_E_UNSUPPORTED  that pair of dtypes
  // [step] [local] [does not block]
  strata_status_t (*cast)(strata_host_t* host, strata_stream_t stream, void* dst, int32_t dst_dtype,
                          const void* src, int32_t src_dtype, uint64_t count);
  // dst += src, added in dst's dtype after a cast of src. Same returns as cast.
  // [step] [local] [does not block]
  strata_status_t (*add)(strata_host_t* host, strata_stream_t stream, void* dst, int32_t dst_dtype,
                         const void* src, int32_t src_dtype, uint64_t count);
  // dst *= factor.
  // [step] [local] [does not block]
  strata_status_t (*scale)(strata_host_t* host, strata_stream_t stream, void* dst, int32_t dtype,
                           double factor, uint64_t count);
  // dst = zero bytes.
  // [step] [local] [does not block]
  strata_status_t (*zero)(strata_host_t* host, strata_stream_t stream, void* dst, uint64_t bytes);
} strata_host_kernels_1_t;

// ---- strata.host.store/1 ------------------------------------------------------------------------
#define STRATA_HOST_STORE_1 "strata.host.store/1"

// A key-value store that all ranks share, for rendezvous: communicator ids, agreement before abort.
// Keys are prefixed by the host, so two runs or two strategies never meet.
typedef struct strata_host_store_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // Sets key to a copy of `bytes` bytes.
  // Returns   STRATA_OK, STRATA_E_IO, STRATA_E_TIMEOUT
  // [any] [local] [blocks]
  strata_status_t (*set)(strata_host_t* host, const char* key, const void* value, uint64_t bytes);
  // Waits for the key, then copies min(*bytes, its size) bytes and sets *bytes to its size.
  // `timeout_ms` 0 means the host's deadline.
  // Returns   STRATA_OK
  //           STRATA_E_TIMEOUT  the text has key and time
  //           STRATA_E_IO
  // [any] [local] [blocks]
  strata_status_t (*get)(strata_host_t* host, const char* key, void* value, uint64_t* bytes,
                         uint64_t timeout_ms);
  // Adds to a counter that starts at 0; *result is its value after that. A strategy that attaches
  // again takes a fresh key by counting here: keys live as long as the run.
  // [any] [local] [blocks]
  strata_status_t (*add)(strata_host_t* host, const char* key, int64_t delta, int64_t* result);
} strata_host_store_1_t;

// ---- strata.host.communication/1 ----------------------------------------------------------------
#define STRATA_HOST_COMMUNICATION_1 "strata.host.communication/1"

typedef struct strata_host_communication_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // Absolute path of the library that speaks NCCL's C API for this device: libnccl.so.2 (the copy
  // that the process already has), librccl.so, libstrata_ccl_cpu.so, libstrata_ccl_mpi.so.
  // Constant.
  // [any] [local] [does not block]
  const char* (*library)(strata_host_t* host);
  // The deadline of every wait, in milliseconds.
  // [any] [local] [does not block]
  uint64_t (*timeout_ms)(strata_host_t* host);
  // Counts bytes that this rank put on the wire. The SDK's communicator calls it; a plugin with its
  // own must.
  // [any] [local] [does not block]
  void (*count_sent)(strata_host_t* host, uint64_t bytes);
} strata_host_communication_1_t;

// ---- strata.host.log/1 --------------------------------------------------------------------------
#define STRATA_HOST_LOG_1 "strata.host.log/1"

#define STRATA_LOG_DEBUG 1
#define STRATA_LOG_INFO 2
#define STRATA_LOG_WARNING 3
#define STRATA_LOG_ERROR 4

typedef struct strata_host_log_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // One line of log.
  // [any] [local] [blocks]
  void (*log)(strata_host_t* host, int32_t level, const char* text);
  // The error sink: says why the slot that is running will return `status`. Text with values, place
  // and a hint, for example
  //   zero: unit 'block.3' has 1003 elements, not a multiple of 4 ranks. HINT: set pad = true
  // The host keeps the last text of each thread and clears it before each slot it calls. So a
  // failure that a plugin's own thread met is told again on the thread of the slot. `host` may be
  // NULL in slots that have none (describe, option, estimate).
  // [any] [local] [does not block]
  void (*fail)(strata_host_t* host, strata_status_t status, const char* text);
} strata_host_log_1_t;

// ---- strata.host.trace/1 ------------------------------------------------------------------------
#define STRATA_HOST_TRACE_1 "strata.host.trace/1"

typedef struct strata_host_trace_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // Opens and closes a span of the calling thread; spans nest. The name is the source's words, for
  // example "fsdp/before_forward/all_gather"; it must stay valid until end.
  // [any] [local] [does not block]
  void (*begin)(strata_host_t* host, const char* name);
  void (*end)(strata_host_t* host);
} strata_host_trace_1_t;

// ---- strata.host.threads/1 ----------------------------------------------------------------------
#define STRATA_HOST_THREADS_1 "strata.host.threads/1"

typedef struct strata_host_threads_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // Calls run(argument, begin, end) over [0, count) in ranges of at least `grain`, on the host's
  // threads and the caller's, and returns when all are done. `run` must not unwind.
  // [any] [local] [blocks]
  strata_status_t (*parallel_for)(strata_host_t* host, uint64_t count, uint64_t grain,
                                  void (*run)(void* argument, uint64_t begin, uint64_t end),
                                  void* argument);
} strata_host_threads_1_t;

#ifdef __cplusplus
}
#endif
#endif  // STRATA_ABI_HOST_H_
