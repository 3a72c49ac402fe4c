#include "strata/sdk/master.h"

namespace strata::sdk {

Master::Master(strata_host_t* host, void* parameters, int32_t dtype, uint64_t numel,
               const char* label)
    : host_(host), parameters_(parameters), dtype_(dtype), numel_(numel) {
  if (is_parameter()) return;
  memory_ = Buffer(host, STRATA_PLACE_DEVICE, STRATA_TAG_OPTIMIZER, numel * sizeof(float),
                   STRATA_MEMORY_ZEROED, label);
}

void Master::store(strata_stream_t stream) const {
  if (is_parameter() || numel_ == 0) return;
  check(services().kernels->cast(host_, stream, parameters_, dtype_, memory_.data(),
                                 STRATA_DTYPE_F32, numel_),
        "rounding masters into parameters");
}

}  // namespace strata::sdk
