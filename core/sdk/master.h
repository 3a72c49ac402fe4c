// The fp32 masters of a unit or of a slice of it.
#ifndef STRATA_SDK_MASTER_H_
#define STRATA_SDK_MASTER_H_

#include <cstdint>

#include "strata/sdk/host.h"

namespace strata::sdk {

// With fp32 parameters the masters are the parameters. With 16-bit ones they are memory of their
// own, counted as optimizer state, from which store() rounds the parameters.
class Master {
 public:
  Master() = default;
  // Of `numel` parameters of this dtype, which outlive this object. `label` is for the host's
  // counters. Masters of their own are zero.
  Master(strata_host_t* host, void* parameters, int32_t dtype, uint64_t numel, const char* label);

  float* data() const {
    return is_parameter() ? static_cast<float*>(parameters_) : memory_.floats();
  }
  bool is_parameter() const { return dtype_ == STRATA_DTYPE_F32; }
  // parameters = masters, rounded to nearest even, queued in `stream`. Nothing if they are one.
  void store(strata_stream_t stream) const;

 private:
  strata_host_t* host_ = nullptr;
  void* parameters_ = nullptr;
  int32_t dtype_ = STRATA_DTYPE_F32;
  uint64_t numel_ = 0;
  Buffer memory_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_MASTER_H_
