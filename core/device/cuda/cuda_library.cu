// The CUDA side of a host: thin calls of the runtime, and three elementwise kernels.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "strata/abi/types.h"
#include "strata/device/cuda/cuda_library.h"

namespace {

constexpr int kThreads = 256;
constexpr uint64_t kMaxBlocks = 4096;  // beyond that a thread takes several elements

struct F32 {
  using Storage = float;
  static __device__ float load(float value) { return value; }
  static __device__ float store(float value) { return value; }
};
struct BF16 {
  using Storage = __nv_bfloat16;
  static __device__ float load(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __nv_bfloat16 store(float value) { return __float2bfloat16_rn(value); }
};
struct F16 {
  using Storage = __half;
  static __device__ float load(__half value) { return __half2float(value); }
  static __device__ __half store(float value) { return __float2half_rn(value); }
};

template <typename Function>
__global__ void elementwise(uint64_t count, Function function) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    function(i);
  }
}

template <typename Dst, typename Src>
struct Cast {
  typename Dst::Storage* dst;
  const typename Src::Storage* src;
  __device__ void operator()(uint64_t i) const { dst[i] = Dst::store(Src::load(src[i])); }
};

template <typename Dst, typename Src>
struct Add {
  typename Dst::Storage* dst;
  const typename Src::Storage* src;
  __device__ void operator()(uint64_t i) const {
    const float addend = Dst::load(Dst::store(Src::load(src[i])));
    dst[i] = Dst::store(__fadd_rn(Dst::load(dst[i]), addend));
  }
};

template <typename T>
struct Scale {
  typename T::Storage* dst;
  float factor;
  __device__ void operator()(uint64_t i) const {
    dst[i] = T::store(__fmul_rn(T::load(dst[i]), factor));
  }
};

template <typename Function>
int launch(void* stream, uint64_t count, Function function) {
  uint64_t blocks = (count + kThreads - 1) / kThreads;
  if (blocks > kMaxBlocks) blocks = kMaxBlocks;
  elementwise<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      count, function);
  return cudaGetLastError();
}

template <template <typename, typename> class Operation, typename Dst, typename Src>
int launch_binary(void* stream, void* dst, const void* src, uint64_t count) {
  return launch(stream, count,
                Operation<Dst, Src>{static_cast<typename Dst::Storage*>(dst),
                                    static_cast<const typename Src::Storage*>(src)});
}

template <template <typename, typename> class Operation, typename Dst>
int choose_source(void* stream, void* dst, const void* src, int32_t src_dtype, uint64_t count) {
  switch (src_dtype) {
    case STRATA_DTYPE_F32: return launch_binary<Operation, Dst, F32>(stream, dst, src, count);
    case STRATA_DTYPE_BF16: return launch_binary<Operation, Dst, BF16>(stream, dst, src, count);
    case STRATA_DTYPE_F16: return launch_binary<Operation, Dst, F16>(stream, dst, src, count);
    default: return cudaErrorInvalidValue;
  }
}

template <template <typename, typename> class Operation>
int choose(void* stream, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype,
           uint64_t count) {
  switch (dst_dtype) {
    case STRATA_DTYPE_F32: return choose_source<Operation, F32>(stream, dst, src, src_dtype, count);
    case STRATA_DTYPE_BF16:
      return choose_source<Operation, BF16>(stream, dst, src, src_dtype, count);
    case STRATA_DTYPE_F16: return choose_source<Operation, F16>(stream, dst, src, src_dtype, count);
    default: return cudaErrorInvalidValue;
  }
}

int scale(void* stream, void* dst, int32_t dtype, float factor, uint64_t count) {
  switch (dtype) {
    case STRATA_DTYPE_F32:
      return launch(stream, count, Scale<F32>{static_cast<float*>(dst), factor});
    case STRATA_DTYPE_BF16:
      return launch(stream, count, Scale<BF16>{static_cast<__nv_bfloat16*>(dst), factor});
    case STRATA_DTYPE_F16:
      return launch(stream, count, Scale<F16>{static_cast<__half*>(dst), factor});
    default: return cudaErrorInvalidValue;
  }
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }
int device_count(int* count) { return cudaGetDeviceCount(count); }
int use_device(int index) { return cudaSetDevice(index); }
int device_alloc(void** data, uint64_t bytes) { return cudaMalloc(data, bytes); }
int device_free(void* data) { return cudaFree(data); }
int pinned_alloc(void** data, uint64_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocPortable);
}
int pinned_free(void* data) { return cudaFreeHost(data); }

void* default_stream() { return cudaStreamLegacy; }
int stream_create(void** stream) {
  return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking);
}
int stream_destroy(void* stream) { return cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
int stream_wait(void* stream, void* event) {
  return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0);
}
int event_create(void** event) {
  return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming);
}
int event_destroy(void* event) { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
int event_record(void* event, void* stream) {
  return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream));
}
int event_query(void* event, int32_t* passed) {
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
  *passed = error == cudaSuccess ? 1 : 0;
  return error == cudaErrorNotReady ? cudaSuccess : error;
}

int copy(void* stream, void* dst, const void* src, uint64_t bytes) {
  return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream));
}
int zero(void* stream, void* dst, uint64_t bytes) {
  return cudaMemsetAsync(dst, 0, bytes, static_cast<cudaStream_t>(stream));
}

const strata_cuda_library_t kLibrary = {
    sizeof(strata_cuda_library_t),
    0,
    error_text,
    device_count,
    use_device,
    device_alloc,
    device_free,
    pinned_alloc,
    pinned_free,
    default_stream,
    stream_create,
    stream_destroy,
    stream_wait,
    event_create,
    event_destroy,
    event_record,
    event_query,
    copy,
    zero,
    choose<Cast>,
    choose<Add>,
    scale,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const strata_cuda_library_t*
strata_device_cuda_library(void) {
  return &kLibrary;
}
