// A CUDA library without a GPU: everything happens at once, but for streams that are held.
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <string.h>

#include "strata/abi/types.h"
#include "strata/device/cuda/cuda_library.h"

#define SHOWN __attribute__((visibility("default")))

struct stream {
  int is_held;
};
struct event {
  struct stream* stream;
};

static int gpus = 1;
static int is_out_of_memory = 0;
static struct stream first;

SHOWN void double_set_gpus(int count) { gpus = count; }
SHOWN void double_hold(void* stream, int is_held) { ((struct stream*)stream)->is_held = is_held; }
SHOWN void double_end_memory(int is_ended) { is_out_of_memory = is_ended; }

static const char* error_text(int error) { return error == 2 ? "out of memory" : "no device"; }
static int device_count(int* count) {
  *count = gpus;
  return gpus == 0 ? 100 : 0;
}
static int use_device(int index) { return index < gpus ? 0 : 101; }

static int alloc(void** data, uint64_t bytes) {
  return is_out_of_memory || posix_memalign(data, 256, bytes) != 0 ? 2 : 0;
}
static int release(void* data) {
  free(data);
  return 0;
}

static void* default_stream(void) { return &first; }
static int create_stream(void** stream) {
  *stream = calloc(1, sizeof(struct stream));
  return 0;
}
static int create_event(void** event) {
  *event = calloc(1, sizeof(struct event));
  return 0;
}
static int wait_event(void* stream, void* event) { return 0; }
static int record(void* event, void* stream) {
  ((struct event*)event)->stream = (struct stream*)stream;
  return 0;
}
static int query(void* event, int32_t* passed) {
  const struct stream* stream = ((struct event*)event)->stream;
  *passed = stream == NULL || !stream->is_held;
  return 0;
}

static int copy(void* stream, void* dst, const void* src, uint64_t bytes) {
  memcpy(dst, src, bytes);
  return 0;
}
static int zero(void* stream, void* dst, uint64_t bytes) {
  memset(dst, 0, bytes);
  return 0;
}
static int cast(void* stream, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
                uint64_t count) {
  return 1;
}
static int scale(void* stream, void* dst, int32_t dtype, float factor, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) ((float*)dst)[i] *= factor;
  return 0;
}

static const strata_cuda_library_t library = {
    sizeof(strata_cuda_library_t), 0, error_text, device_count, use_device, alloc, release, alloc,
    release, default_stream, create_stream, release, wait_event, create_event, release, record,
    query, copy, zero, cast, cast, scale};

SHOWN const strata_cuda_library_t* strata_device_cuda_library(void) { return &library; }
