// Words that every table of the Strata contract uses: status codes, data types, places, tags,
// devices.
//
// The contract is C99: fixed-width integers and named constants, no bool, bit-field, bare enum,
// long, union, varargs or C++ type. Argument and descriptor structs start with `uint32_t
// struct_size`, which the side that *allocates* the struct sets to its own sizeof. The side that
// reads accepts any `struct_size >= NAME_MIN_SIZE`, reads a field only if it lies inside
// `struct_size`, and writes no byte past it. Padding is explicit and zero. Structs may grow at the
// end; a published function table never changes (a new ability is a new table). In an array of such
// structs all elements have the same `struct_size`, and that is the stride: step by it, not by your
// own sizeof.
//
// Pointers passed in are borrowed until the call returns, unless a slot says otherwise. Text is
// UTF-8 and ends with NUL. Nothing unwinds across the boundary in either direction.
#ifndef STRATA_ABI_TYPES_H_
#define STRATA_ABI_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Whether `field` lies inside the `struct_size` bytes that `ptr` declares. The reader's half of the
// growth rule.
#define STRATA_HAS_FIELD(type, ptr, field) \
  ((size_t)(ptr)->struct_size >= offsetof(type, field) + sizeof(((type*)0)->field))

// Bytes up to and including `last`: the frozen minimum of a struct that may grow behind it.
#define STRATA_MIN_SIZE(type, last) (offsetof(type, last) + sizeof(((type*)0)->last))

// What every slot returns. 0 is success; every other value comes with a text in the host's error
// sink (strata.host.log/1), and a failing return without one is a bug that the checked mode names.
typedef int32_t strata_status_t;
#define STRATA_OK 0
#define STRATA_E_INVALID_ARGUMENT 1  // the caller's values are wrong; nothing was changed
#define STRATA_E_UNSUPPORTED 2       // well-formed, but this implementation cannot do it
#define STRATA_E_OUT_OF_MEMORY 3     // a memory limit of the host or of the machine
#define STRATA_E_TIMEOUT 4           // a deadline passed; the text names what was waited for
#define STRATA_E_ABORTED 5    // abort() was called; only abort() and destroy() are legal from here
#define STRATA_E_PEER_LOST 6  // another rank died; only abort() and destroy() are legal from here
#define STRATA_E_STATE 7      // called in the wrong state or order
#define STRATA_E_IO 8         // a file or a socket failed
#define STRATA_E_NOT_FOUND 9  // no such name, key or file
#define STRATA_E_INTERNAL 10  // a broken invariant on the callee's side

// Element types. The values are those of the wire and of checkpoints: never renumbered.
#define STRATA_DTYPE_F32 1
#define STRATA_DTYPE_BF16 2
#define STRATA_DTYPE_F16 3
#define STRATA_DTYPE_F64 4
#define STRATA_DTYPE_I64 5
#define STRATA_DTYPE_I32 6
#define STRATA_DTYPE_U8 7
// The bit of a dtype in a mask of capabilities.
#define STRATA_DTYPE_BIT(dtype) (UINT64_C(1) << (dtype))

// Where memory lies. On CPU ranks DEVICE and HOST are two accounted arenas of the same RAM.
#define STRATA_PLACE_DEVICE 1
#define STRATA_PLACE_PINNED 2  // host memory that the device can copy from asynchronously
#define STRATA_PLACE_HOST 3

// What memory is for. The host's counters, limits and out-of-memory texts go by these.
#define STRATA_TAG_PARAMETERS 1  // parameters in compute dtype, at rest
#define STRATA_TAG_GRADIENTS 2   // gradient storage at rest
#define STRATA_TAG_OPTIMIZER 3   // moments, and masters that are not the parameters themselves
#define STRATA_TAG_GATHERED 4    // ring slots that hold gathered units
#define STRATA_TAG_STAGING 5     // buckets, ring slots for gradients, copies on their way
#define STRATA_TAG_ACTIVATIONS 6
#define STRATA_TAG_OTHER 7
#define STRATA_TAG_COUNT 8  // one more than the largest tag

#define STRATA_DEVICE_CPU 1
#define STRATA_DEVICE_CUDA 2
#define STRATA_DEVICE_ROCM 3
#define STRATA_DEVICE_BIT(type) (UINT64_C(1) << (type))

// "No unit", "no parameter": the value of an index that points nowhere.
#define STRATA_NONE UINT32_MAX

// A device of this process, for example {CUDA, 0}.
typedef struct strata_device {
  int32_t type;   // STRATA_DEVICE_*
  int32_t index;  // ordinal among the devices of that type; 0 on CPU
} strata_device_t;

// This rank's place among all ranks.
typedef struct strata_world {
  uint32_t struct_size;
  uint32_t rank;        // 0 .. size-1
  uint32_t size;        // number of ranks, at least 1
  uint32_t local_rank;  // place on this node
  uint32_t local_size;  // ranks on this node
  uint32_t node;        // which node
  uint32_t node_count;
  uint32_t reserved;
} strata_world_t;
#define STRATA_WORLD_MIN_SIZE STRATA_MIN_SIZE(strata_world_t, reserved)

// An in-order stream of work on the device. CUDA: the cudaStream_t itself. CPU: a
// strata_cpu_queue_t*.
typedef void* strata_stream_t;
// A point in a stream. CUDA: the cudaEvent_t itself. CPU: the host's own object.
typedef void* strata_event_t;

// What a CPU stream points to: an in-order work queue of the host's.
//
// `enqueue` appends run(argument) and returns without waiting for it; work of one queue runs in the
// order of the calls, one at a time, on a thread of the host's choosing (for the compute stream
// that is the calling thread, before enqueue returns). Callable from any thread. The queue owns
// nothing of `argument`. Returns STRATA_OK, or STRATA_E_STATE when the queue is shutting down, in
// which case `run` is never called.
typedef struct strata_cpu_queue {
  strata_status_t (*enqueue)(struct strata_cpu_queue* queue, void (*run)(void* argument),
                             void* argument);
} strata_cpu_queue_t;

// One `key=value` pair of the user's.
typedef struct strata_option {
  const char* key;
  const char* value;
} strata_option_t;

#ifdef __cplusplus
}
#endif
#endif  // STRATA_ABI_TYPES_H_
