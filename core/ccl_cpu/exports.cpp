// NCCL's functions over ccl::Communicator.
#include "strata/ccl_cpu/exports.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/abi/strategy.h"
#include "strata/ccl_cpu/communicator.h"

using namespace strata::ccl;        // NOLINT: this file is the library's face
using namespace strata::sdk::nccl;  // NOLINT

namespace {

using CommunicatorPointer = std::shared_ptr<Communicator>;

thread_local Failure last_failure;       // what the last refused call of this thread said
thread_local std::string returned_text;  // what ncclGetLastError(comm) returned
thread_local uint64_t timeout_ms = 600'000;

// Handles are numbers, never addresses: a stale one is recognised.
struct Handles {
  std::mutex mutex;
  std::unordered_map<uint64_t, CommunicatorPointer> communicators;
  uint64_t next = 1;
};
Handles& handles() {
  static auto* all = new Handles;  // outlives threads that are still running at exit
  return *all;
}
uint64_t number_of(Comm comm) { return reinterpret_cast<uint64_t>(comm); }

Comm add_handle(CommunicatorPointer communicator) {
  Handles& all = handles();
  std::lock_guard lock(all.mutex);
  const uint64_t number = all.next++;
  all.communicators[number] = std::move(communicator);
  return reinterpret_cast<Comm>(number);
}

CommunicatorPointer find_handle(Comm comm) {
  Handles& all = handles();
  std::lock_guard lock(all.mutex);
  const auto found = all.communicators.find(number_of(comm));
  return found == all.communicators.end() ? nullptr : found->second;
}

CommunicatorPointer take_handle(Comm comm) {
  Handles& all = handles();
  std::lock_guard lock(all.mutex);
  const auto found = all.communicators.find(number_of(comm));
  if (found == all.communicators.end()) return nullptr;
  CommunicatorPointer communicator = std::move(found->second);
  all.communicators.erase(found);
  return communicator;
}

Result result_of(int32_t code) {
  switch (code) {
    case STRATA_OK: return Result::kSuccess;
    case STRATA_E_INVALID_ARGUMENT:
    case STRATA_E_UNSUPPORTED: return Result::kInvalidArgument;
    case STRATA_E_STATE: return Result::kInvalidUsage;
    case STRATA_E_PEER_LOST:
    case STRATA_E_ABORTED: return Result::kRemoteError;
    case STRATA_E_INTERNAL: return Result::kInternalError;
    default: return Result::kSystemError;
  }
}

Result refuse(Failure failure) {
  const Result result = result_of(failure.code);
  if (failure.happened()) last_failure = std::move(failure);
  return result;
}

Result refuse_handle() {
  return refuse({STRATA_E_STATE, "the communicator is not known, or was destroyed or aborted"});
}

// Nothing unwinds into C.
template <typename Body>
Result guarded(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse({STRATA_E_OUT_OF_MEMORY, "out of memory"});
  } catch (const std::exception& e) {
    return refuse({STRATA_E_INTERNAL, e.what()});
  }
}

int32_t dtype_of(DataType type) {
  switch (type) {
    case DataType::kUint8: return STRATA_DTYPE_U8;
    case DataType::kInt32: return STRATA_DTYPE_I32;
    case DataType::kInt64: return STRATA_DTYPE_I64;
    case DataType::kFloat16: return STRATA_DTYPE_F16;
    case DataType::kFloat32: return STRATA_DTYPE_F32;
    case DataType::kFloat64: return STRATA_DTYPE_F64;
    case DataType::kBfloat16: return STRATA_DTYPE_BF16;
  }
  return 0;
}

int32_t reduction_of(Op op) {
  switch (op) {
    case Op::kSum: return STRATA_REDUCE_SUM;
    case Op::kMin: return STRATA_REDUCE_MIN;
    case Op::kMax: return STRATA_REDUCE_MAX;
  }
  return -1;
}

// Collectives of this thread between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  std::vector<std::pair<CommunicatorPointer, Call>> calls;
};
thread_local Group group;

Result collective(Kind kind, const void* send, void* receive, size_t count, DataType type,
                  int32_t op, int root, Comm comm, Stream stream) {
  return guarded([&] {
    const CommunicatorPointer communicator = find_handle(comm);
    if (communicator == nullptr) return refuse_handle();
    Call call;
    call.operation.kind = kind;
    call.operation.dtype = dtype_of(type);
    call.operation.op = op;
    call.operation.root = static_cast<uint32_t>(root);
    call.operation.count = count;
    call.send = send;
    call.receive = receive;
    call.queue = static_cast<strata_cpu_queue_t*>(stream);
    if (Failure failure = communicator->check(call); failure.happened()) return refuse(failure);
    if (group.depth > 0) {
      group.calls.emplace_back(communicator, call);
    } else {
      communicator->issue(call);
    }
    return Result::kSuccess;
  });
}

Result join(Comm* comm, int ranks, const UniqueId& id, int rank, const char* name) {
  return guarded([&] {
    if (comm == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "comm is NULL"});
    *comm = nullptr;
    if (group.depth > 0) {
      return refuse({STRATA_E_STATE, "a communicator cannot be made inside a group"});
    }
    if (rank < 0 || ranks < 1) {
      return refuse({STRATA_E_INVALID_ARGUMENT,
                     "rank " + std::to_string(rank) + " of " + std::to_string(ranks)});
    }
    CommunicatorPointer made;
    const JoinRequest request{id, static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks), name,
                              std::chrono::milliseconds(timeout_ms)};
    if (Failure failure = Communicator::join(request, &made); failure.happened()) {
      return refuse(failure);
    }
    *comm = add_handle(std::move(made));
    return Result::kSuccess;
  });
}

// Null if the caller gave none. REQUIRES: config->size is right.
const char* name_in(const Config* config) {
  const bool has_name =
      config != nullptr && config->size >= offsetof(Config, comm_name) + sizeof(config->comm_name);
  return has_name ? config->comm_name : nullptr;
}

bool is_config(const Config* config) { return config == nullptr || config->magic == kConfigMagic; }

}  // namespace

STRATA_CCL_EXPORT Result ncclGetVersion(int* version) {
  if (version == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "version is NULL"});
  *version = kConfigVersion;
  return Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  return guarded([&] {
    if (id == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "id is NULL"});
    return refuse(make_unique_id(id));
  });
}

STRATA_CCL_EXPORT Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  return join(comm, ranks, id, rank, "");
}

STRATA_CCL_EXPORT Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank,
                                                Config* config) {
  if (!is_config(config)) return refuse({STRATA_E_INVALID_ARGUMENT, "config has no magic"});
  const char* name = name_in(config);
  return join(comm, ranks, id, rank, name == nullptr ? "" : name);
}

STRATA_CCL_EXPORT Result ncclCommSplit(Comm comm, int color, int key, Comm* made, Config* config) {
  return guarded([&] {
    const CommunicatorPointer communicator = find_handle(comm);
    if (communicator == nullptr) return refuse_handle();
    if (made == nullptr || !is_config(config)) {
      return refuse({STRATA_E_INVALID_ARGUMENT, "newcomm is NULL or config has no magic"});
    }
    *made = nullptr;
    CommunicatorPointer part;
    if (Failure failure = communicator->split(color, key, name_in(config), &part);
        failure.happened()) {
      return refuse(failure);
    }
    if (part != nullptr) *made = add_handle(std::move(part));
    return Result::kSuccess;
  });
}

STRATA_CCL_EXPORT Result ncclCommFinalize(Comm comm) {
  return find_handle(comm) == nullptr ? refuse_handle() : Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclCommDestroy(Comm comm) {
  if (comm == nullptr) return Result::kSuccess;
  // Queued collectives keep their communicator.
  return take_handle(comm) == nullptr ? refuse_handle() : Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclCommAbort(Comm comm) {
  return guarded([&] {
    if (comm == nullptr) return Result::kSuccess;
    const CommunicatorPointer communicator = take_handle(comm);
    if (communicator == nullptr) return refuse_handle();
    communicator->abort();
    return Result::kSuccess;
  });
}

STRATA_CCL_EXPORT Result ncclCommGetAsyncError(Comm comm, Result* error) {
  return guarded([&] {
    const CommunicatorPointer communicator = find_handle(comm);
    if (communicator == nullptr) return refuse_handle();
    if (error == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "asyncError is NULL"});
    *error = result_of(communicator->failure().code);
    return Result::kSuccess;
  });
}

STRATA_CCL_EXPORT Result ncclCommCount(const Comm comm, int* count) {
  const CommunicatorPointer communicator = find_handle(comm);
  if (communicator == nullptr) return refuse_handle();
  if (count == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "count is NULL"});
  *count = static_cast<int>(communicator->size());
  return Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclCommUserRank(const Comm comm, int* rank) {
  const CommunicatorPointer communicator = find_handle(comm);
  if (communicator == nullptr) return refuse_handle();
  if (rank == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "rank is NULL"});
  *rank = static_cast<int>(communicator->rank());
  return Result::kSuccess;
}

STRATA_CCL_EXPORT const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::kSuccess: return "no error";
    case Result::kUnhandledCudaError: return "unhandled device error";
    case Result::kSystemError: return "unhandled system error or time-out";
    case Result::kInternalError: return "internal error";
    case Result::kInvalidArgument: return "invalid argument";
    case Result::kInvalidUsage: return "invalid usage";
    case Result::kRemoteError: return "a rank died, left or aborted";
    case Result::kInProgress: return "operation in progress";
  }
  return "unknown result code";
}

STRATA_CCL_EXPORT const char* ncclGetLastError(Comm comm) {
  try {
    const CommunicatorPointer communicator = find_handle(comm);
    const Failure failure = communicator == nullptr ? Failure{} : communicator->failure();
    returned_text = failure.happened() ? failure.text : last_failure.text;
    return returned_text.c_str();
  } catch (const std::exception&) {
    return "out of memory";
  }
}

STRATA_CCL_EXPORT Result ncclMemAlloc(void** pointer, size_t bytes) {
  return guarded([&] {
    if (pointer == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "ptr is NULL"});
    return refuse(SharedMemory::of_this_process().allocate(bytes, pointer));
  });
}

STRATA_CCL_EXPORT Result ncclMemFree(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr || SharedMemory::of_this_process().free(pointer)) {
      return Result::kSuccess;
    }
    return refuse({STRATA_E_INVALID_ARGUMENT, "the pointer is not from ncclMemAlloc"});
  });
}

STRATA_CCL_EXPORT Result ncclCommRegister(const Comm comm, void* buffer, size_t bytes,
                                          void** handle) {
  if (find_handle(comm) == nullptr) return refuse_handle();
  if (handle == nullptr) return refuse({STRATA_E_INVALID_ARGUMENT, "handle is NULL"});
  *handle = buffer;
  return Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclCommDeregister(const Comm comm, void* handle) {
  return find_handle(comm) == nullptr ? refuse_handle() : Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclAllGather(const void* send, void* receive, size_t count, DataType type,
                                       Comm comm, Stream stream) {
  return collective(Kind::kAllGather, send, receive, count, type, 0, 0, comm, stream);
}

STRATA_CCL_EXPORT Result ncclReduceScatter(const void* send, void* receive, size_t count,
                                           DataType type, Op op, Comm comm, Stream stream) {
  return collective(Kind::kReduceScatter, send, receive, count, type, reduction_of(op), 0, comm,
                    stream);
}

STRATA_CCL_EXPORT Result ncclAllReduce(const void* send, void* receive, size_t count, DataType type,
                                       Op op, Comm comm, Stream stream) {
  return collective(Kind::kAllReduce, send, receive, count, type, reduction_of(op), 0, comm,
                    stream);
}

STRATA_CCL_EXPORT Result ncclBroadcast(const void* send, void* receive, size_t count, DataType type,
                                       int root, Comm comm, Stream stream) {
  return collective(Kind::kBroadcast, send, receive, count, type, 0, root, comm, stream);
}

STRATA_CCL_EXPORT Result ncclGroupStart() {
  ++group.depth;
  return Result::kSuccess;
}

STRATA_CCL_EXPORT Result ncclGroupEnd() {
  return guarded([&] {
    if (group.depth == 0) {
      return refuse({STRATA_E_STATE, "ncclGroupEnd without ncclGroupStart"});
    }
    if (--group.depth > 0) return Result::kSuccess;
    const auto calls = std::move(group.calls);
    group.calls.clear();
    for (const auto& [communicator, call] : calls) communicator->issue(call);
    return Result::kSuccess;
  });
}

STRATA_CCL_EXPORT Result strataCclSetTimeout(uint64_t milliseconds) {
  if (milliseconds == 0) return refuse({STRATA_E_INVALID_ARGUMENT, "a timeout of 0 ms"});
  timeout_ms = std::min<uint64_t>(milliseconds, uint64_t{1} << 40);
  return Result::kSuccess;
}

STRATA_CCL_EXPORT Result strataCclSetLink(uint64_t bytes_per_second) {
  set_link(bytes_per_second);
  return Result::kSuccess;
}

STRATA_CCL_EXPORT uint64_t strataCclSentBytes(Comm comm) {
  const CommunicatorPointer communicator = find_handle(comm);
  return communicator == nullptr ? 0 : communicator->sent_bytes();
}

STRATA_CCL_EXPORT int32_t strataCclError(Comm comm, char* text, size_t text_bytes) {
  Failure failure = last_failure;
  if (comm != nullptr) {
    const CommunicatorPointer communicator = find_handle(comm);
    failure = communicator != nullptr
                  ? communicator->failure()
                  : Failure{STRATA_E_STATE, "the communicator was destroyed or aborted"};
  }
  if (text != nullptr && text_bytes != 0) {
    const size_t bytes = std::min(text_bytes - 1, failure.text.size());
    std::memcpy(text, failure.text.data(), bytes);
    text[bytes] = '\0';
  }
  return failure.code;
}
