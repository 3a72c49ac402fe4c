// What libstrata_device_cuda.so offers: the few CUDA calls that a host needs, as a table.
//
// The library is built by nvcc where a toolkit is installed, with the CUDA runtime inside, and is
// opened at run time by absolute path; nothing else of Strata links CUDA. Host and library are
// built together: the table has no versions beyond its size.
#ifndef STRATA_DEVICE_CUDA_CUDA_LIBRARY_H_
#define STRATA_DEVICE_CUDA_CUDA_LIBRARY_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_CUDA_LIBRARY_ENTRY "strata_device_cuda_library"

// Functions that return int give 0 or a cudaError_t. Streams and events are cudaStream_t and
// cudaEvent_t; work is queued for the device that the calling thread uses.
typedef struct strata_cuda_library {
  uint32_t struct_size;
  uint32_t reserved;
  const char* (*error_text)(int error);
  int (*device_count)(int* count);
  int (*use_device)(int index);  // for the calling thread

  int (*device_alloc)(void** data, uint64_t bytes);
  int (*device_free)(void* data);
  int (*pinned_alloc)(void** data, uint64_t bytes);
  int (*pinned_free)(void* data);

  void* (*default_stream)(void);  // the one on which LibTorch computes unless told otherwise
  int (*stream_create)(void** stream);
  int (*stream_destroy)(void* stream);
  int (*stream_wait)(void* stream, void* event);
  int (*event_create)(void** event);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event, int32_t* passed);

  int (*copy)(void* stream, void* dst, const void* src, uint64_t bytes);
  int (*zero)(void* stream, void* dst, uint64_t bytes);
  // dtypes are STRATA_DTYPE_F32, _BF16, _F16.
  int (*cast)(void* stream, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
              uint64_t count);
  int (*add)(void* stream, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
             uint64_t count);
  int (*scale)(void* stream, void* dst, int32_t dtype, float factor, uint64_t count);
} strata_cuda_library_t;

// The one symbol that the library exports.
typedef const strata_cuda_library_t* (*strata_cuda_library_fn)(void);

#ifdef __cplusplus
}
#endif
#endif  // STRATA_DEVICE_CUDA_CUDA_LIBRARY_H_
