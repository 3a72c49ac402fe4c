#include "strata/sdk/nccl_api.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "strata/abi/strategy.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk::nccl {
namespace {

constexpr int kOldestVersion = 21900;  // ncclMemAlloc, ncclCommRegister

template <typename Function>
void find_optional(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(dlsym(library, name));
}

// Looks up the functions of one library and remembers the first that is missing.
struct Finder {
  void* library;
  const char* missing = nullptr;

  template <typename Function>
  void find(const char* name, Function*& out) {
    find_optional(library, name, out);
    if (out == nullptr && missing == nullptr) missing = name;
  }
};

std::unique_ptr<Api> load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw Error(STRATA_E_NOT_FOUND, "the communication library '" + path +
                                        "' does not load: " + (why == nullptr ? "?" : why));
  }
  auto api = std::make_unique<Api>();
  Finder f{library};
  f.find("ncclGetVersion", api->get_version);
  f.find("ncclGetUniqueId", api->get_unique_id);
  f.find("ncclCommInitRank", api->comm_init_rank);
  f.find("ncclCommInitRankConfig", api->comm_init_rank_config);
  f.find("ncclCommSplit", api->comm_split);
  f.find("ncclCommFinalize", api->comm_finalize);
  f.find("ncclCommDestroy", api->comm_destroy);
  f.find("ncclCommAbort", api->comm_abort);
  f.find("ncclCommGetAsyncError", api->comm_get_async_error);
  f.find("ncclCommCount", api->comm_count);
  f.find("ncclCommUserRank", api->comm_user_rank);
  f.find("ncclGetErrorString", api->get_error_string);
  f.find("ncclGetLastError", api->get_last_error);
  f.find("ncclMemAlloc", api->mem_alloc);
  f.find("ncclMemFree", api->mem_free);
  f.find("ncclCommRegister", api->comm_register);
  f.find("ncclCommDeregister", api->comm_deregister);
  f.find("ncclAllGather", api->all_gather);
  f.find("ncclReduceScatter", api->reduce_scatter);
  f.find("ncclAllReduce", api->all_reduce);
  f.find("ncclBroadcast", api->broadcast);
  f.find("ncclGroupStart", api->group_start);
  f.find("ncclGroupEnd", api->group_end);
  find_optional(library, "strataCclSetTimeout", api->strata_ccl_set_timeout);
  find_optional(library, "strataCclError", api->strata_ccl_error);
  int version = 0;
  if (f.missing == nullptr && api->get_version(&version) == Result::kSuccess &&
      version >= kOldestVersion) {
    return api;
  }
  const std::string why = f.missing != nullptr
                              ? std::string("has no function ") + f.missing
                              : "says that it is version " + std::to_string(version);
  dlclose(library);
  throw Error(STRATA_E_UNSUPPORTED, "the communication library '" + path + "' " + why +
                                        ". HINT: NCCL 2.19 or newer is needed");
}

}  // namespace

const Api& Api::open(const std::string& library) {
  // Never given back: threads of communicators may run until the process ends.
  static auto* mutex = new std::mutex;
  static auto* opened = new std::map<std::string, std::unique_ptr<Api>>;
  std::lock_guard lock(*mutex);
  std::unique_ptr<Api>& api = (*opened)[library];
  if (api == nullptr) api = load(library);
  return *api;
}

DataType data_type_of(int32_t strata_dtype) {
  switch (strata_dtype) {
    case STRATA_DTYPE_F32: return DataType::kFloat32;
    case STRATA_DTYPE_BF16: return DataType::kBfloat16;
    case STRATA_DTYPE_F16: return DataType::kFloat16;
    case STRATA_DTYPE_F64: return DataType::kFloat64;
    case STRATA_DTYPE_I64: return DataType::kInt64;
    case STRATA_DTYPE_I32: return DataType::kInt32;
    case STRATA_DTYPE_U8: return DataType::kUint8;
    default:
      throw Error(STRATA_E_UNSUPPORTED, "collectives do not know dtype " +
                                            std::to_string(strata_dtype) + " (STRATA_DTYPE_*)");
  }
}

Op op_of(int32_t strata_op) {
  switch (strata_op) {
    case STRATA_REDUCE_SUM: return Op::kSum;
    case STRATA_REDUCE_MIN: return Op::kMin;
    case STRATA_REDUCE_MAX: return Op::kMax;
    default:
      throw Error(STRATA_E_UNSUPPORTED, "collectives do not know reduction " +
                                            std::to_string(strata_op) + " (STRATA_REDUCE_*)");
  }
}

}  // namespace strata::sdk::nccl
