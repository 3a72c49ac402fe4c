// NCCL's C API as Strata uses it: types, constants, and a table of functions that is filled from a
// library at run time.
//
// Nothing here includes nccl.h, so a plugin builds on machines without CUDA. Values, layouts and
// signatures are those of NCCL 2.28 (tests/unit/nccl_api_check.cpp holds them against the real
// header where it is installed) and have been stable since 2.14; RCCL has the same. A newer library
// reads an older configuration by its `version`, an older one reads as many bytes as it knows.
#ifndef STRATA_SDK_NCCL_API_H_
#define STRATA_SDK_NCCL_API_H_

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "strata/abi/types.h"

// NCCL's opaque communicator.
struct ncclComm;

namespace strata::sdk::nccl {

using Comm = ::ncclComm*;
// A cudaStream_t; on CPU a strata_cpu_queue_t*.
using Stream = void*;

inline constexpr int kUniqueIdBytes = 128;
struct UniqueId {
  char internal[kUniqueIdBytes];
};

enum class Result : uint32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class Op : uint32_t { kSum = 0, kMax = 2, kMin = 3 };

enum class DataType : uint32_t {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

inline constexpr int kSplitNoColor = -1;
inline constexpr int kConfigUndefined = INT_MIN;
inline constexpr uint32_t kConfigMagic = 0xcafebeef;
inline constexpr uint32_t kConfigVersion = 22809;  // of the layout below

struct Config {
  size_t size = sizeof(Config);
  uint32_t magic = kConfigMagic;
  uint32_t version = kConfigVersion;
  int blocking = kConfigUndefined;  // 0: calls return kInProgress instead of waiting
  int cga_cluster_size = kConfigUndefined;
  int min_ctas = kConfigUndefined;
  int max_ctas = kConfigUndefined;
  const char* net_name = nullptr;
  int split_share = kConfigUndefined;
  int traffic_class = kConfigUndefined;
  const char* comm_name = nullptr;  // for messages
  int collnet_enable = kConfigUndefined;
  int cta_policy = kConfigUndefined;
  int shrink_share = kConfigUndefined;
  int nvls_ctas = kConfigUndefined;
  int channels_per_net_peer = kConfigUndefined;
  int nvlink_centric_sched = kConfigUndefined;
};

// Every member but the strata_ccl_ ones is there once open() has returned. Names are NCCL's, for
// example comm_init_rank_config is ncclCommInitRankConfig.
struct Api {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank);
  Result (*comm_init_rank_config)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  Result (*comm_split)(Comm comm, int color, int key, Comm* made, Config* config);
  Result (*comm_finalize)(Comm comm);
  Result (*comm_destroy)(Comm comm);
  Result (*comm_abort)(Comm comm);
  Result (*comm_get_async_error)(Comm comm, Result* error);
  Result (*comm_count)(Comm comm, int* count);
  Result (*comm_user_rank)(Comm comm, int* rank);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);
  Result (*mem_alloc)(void** pointer, size_t bytes);
  Result (*mem_free)(void* pointer);
  Result (*comm_register)(Comm comm, void* buffer, size_t bytes, void** handle);
  Result (*comm_deregister)(Comm comm, void* handle);
  Result (*all_gather)(const void* send, void* receive, size_t send_count, DataType type, Comm comm,
                       Stream stream);
  Result (*reduce_scatter)(const void* send, void* receive, size_t receive_count, DataType type,
                           Op op, Comm comm, Stream stream);
  Result (*all_reduce)(const void* send, void* receive, size_t count, DataType type, Op op,
                       Comm comm, Stream stream);
  Result (*broadcast)(const void* send, void* receive, size_t count, DataType type, int root,
                      Comm comm, Stream stream);
  Result (*group_start)();
  Result (*group_end)();

  // What Strata's own CPU libraries have besides (see ccl_cpu/exports.h), else null: the deadline
  // of waits in communicators that this thread makes from now on, and what went wrong as one of
  // STRATA_E_*, in a communicator or (null) in this thread's latest refused call.
  Result (*strata_ccl_set_timeout)(uint64_t milliseconds);
  int32_t (*strata_ccl_error)(Comm comm, char* text, size_t text_bytes);

  // Opens `library`, an absolute path, once per process; it is never closed. Thread-safe. Throws
  // Error: STRATA_E_NOT_FOUND if it cannot be opened, STRATA_E_UNSUPPORTED if it lacks a function
  // or is older than 2.19 (ncclMemAlloc, ncclCommRegister).
  static const Api& open(const std::string& library);
};

// Throws Error(STRATA_E_UNSUPPORTED) for an unknown dtype.
DataType data_type_of(int32_t strata_dtype);
// STRATA_REDUCE_*; throws Error(STRATA_E_UNSUPPORTED).
Op op_of(int32_t strata_op);

}  // namespace strata::sdk::nccl

#endif  // STRATA_SDK_NCCL_API_H_
