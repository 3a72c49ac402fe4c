#include "strata/device/backend.h"
namespace strata::device {
Result<std::unique_ptr<Backend>> make_cuda_backend(const HostConfig& config,
                                                   std::shared_ptr<AbortSignal> abort,
                                                   std::shared_ptr<Trace> trace) {
  return unsupported("device: CUDA needs the device library");
}
}  // namespace strata::device
