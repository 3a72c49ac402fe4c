#include "strata/sdk/host.h"

namespace strata::sdk {
namespace {

template <typename Table>
bool fetch_table(const strata_hello_t* hello, const char* id, const Table*& out) {
  out = static_cast<const Table*>(hello->get_table(id));
  return out != nullptr && out->struct_size >= sizeof(Table);
}

}  // namespace

const char* HostServices::fetch(const strata_hello_t* hello) {
  if (!fetch_table(hello, STRATA_HOST_MEMORY_1, memory)) return STRATA_HOST_MEMORY_1;
  if (!fetch_table(hello, STRATA_HOST_STREAMS_1, streams)) return STRATA_HOST_STREAMS_1;
  if (!fetch_table(hello, STRATA_HOST_KERNELS_1, kernels)) return STRATA_HOST_KERNELS_1;
  if (!fetch_table(hello, STRATA_HOST_STORE_1, store)) return STRATA_HOST_STORE_1;
  if (!fetch_table(hello, STRATA_HOST_COMMUNICATION_1, communication)) {
    return STRATA_HOST_COMMUNICATION_1;
  }
  if (!fetch_table(hello, STRATA_HOST_LOG_1, log)) return STRATA_HOST_LOG_1;
  if (!fetch_table(hello, STRATA_HOST_TRACE_1, trace)) return STRATA_HOST_TRACE_1;
  if (!fetch_table(hello, STRATA_HOST_THREADS_1, threads)) return STRATA_HOST_THREADS_1;
  return nullptr;
}

HostServices& services() {
  static HostServices instance;
  return instance;
}

}  // namespace strata::sdk
