// What libstrata_ccl_cpu.so exports besides NCCL's functions.
//
// The library is NCCL's C API over shared memory, for ranks that are processes of one user on one
// host, or threads of one process. It differs from NCCL in this:
// - A cudaStream_t is a strata_cpu_queue_t*; NULL runs the collective in the calling thread.
// - ncclGroupStart/End put collectives off until the group ends. Communicators are not made inside
//   a group, and several ranks of one communicator in one thread would wait for each other.
// - A handle that was destroyed or aborted is recognised: the call returns ncclInvalidUsage.
// - Calls that make communicators always block, whatever ncclConfig_t.blocking says, and end by the
//   deadline at the latest.
// - Reductions: sum, min and max over u8, i32, i64, f16, bf16, f32, f64. Elements are combined in
//   rank order, 16-bit floats in fp32 with one rounding at the end, so the result depends neither
//   on message size nor on the collective. min and max give NaN if any rank has NaN.
// - Memory from ncclMemAlloc is read and written in place by peers; other memory is copied through
//   a staging area. ncclCommRegister succeeds for any memory and changes nothing.
// - After an error every later collective of the communicator fails at once. Its queues go on.
#ifndef STRATA_CCL_CPU_EXPORTS_H_
#define STRATA_CCL_CPU_EXPORTS_H_

#include "strata/sdk/nccl_api.h"

#define STRATA_CCL_EXPORT extern "C" __attribute__((visibility("default")))

// The deadline of every wait in communicators that the calling thread makes from now on, their
// meeting included; 600,000 at the start. 0 is ncclInvalidArgument.
STRATA_CCL_EXPORT strata::sdk::nccl::Result strataCclSetTimeout(uint64_t milliseconds);

// Plays a link of so many bytes a second and rank: a collective ends no sooner than its bytes need,
// in every communicator of this process. 0 (at the start) turns it off.
STRATA_CCL_EXPORT strata::sdk::nccl::Result strataCclSetLink(uint64_t bytes_per_second);

// Bytes that this rank has sent to others in collectives that are done: what peers read of its
// memory, and what it wrote into theirs. A byte that went through the staging area counts once.
STRATA_CCL_EXPORT uint64_t strataCclSentBytes(strata::sdk::nccl::Comm comm);

// STRATA_OK, or what went wrong first in this communicator as STRATA_E_*; `text` (may be NULL) gets
// its message. STRATA_E_STATE for an unknown handle. With NULL for `comm`: why the latest call of
// this thread that did not return ncclSuccess was refused.
STRATA_CCL_EXPORT int32_t strataCclError(strata::sdk::nccl::Comm comm, char* text,
                                         size_t text_bytes);

#endif  // STRATA_CCL_CPU_EXPORTS_H_
