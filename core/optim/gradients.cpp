#include "strata/optim/gradients.h"

#include <algorithm>

#include "strata/abi/types.h"
#include "strata/base/check.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

bool is_gradient_dtype(int32_t dtype) {
  return dtype == STRATA_DTYPE_F32 || dtype == STRATA_DTYPE_BF16 || dtype == STRATA_DTYPE_F16;
}

bool is_updated(const model::Partition& partition) {
  return partition.is_trainable && partition.gradient != nullptr && partition.numel > 0;
}

Gradient Gradient::from(int64_t offset) const {
  const int64_t size = dtype_ == STRATA_DTYPE_F32 ? 4 : 2;
  return {static_cast<const char*>(data_) + offset * size, dtype_};
}

const float* Gradient::in_place() const {
  return dtype_ == STRATA_DTYPE_F32 ? static_cast<const float*>(data_) : nullptr;
}

const float* Gradient::read(int64_t begin, int64_t numel, float* scratch) const {
  if (const float* const values = in_place()) return values + begin;
  copy(begin, numel, scratch);
  return scratch;
}

void Gradient::copy(int64_t begin, int64_t numel, float* out) const {
  if (const float* const values = in_place()) {
    std::copy_n(values + begin, numel, out);
    return;
  }
  const uint16_t* const values = static_cast<const uint16_t*>(data_) + begin;
  STRATA_CHECK(is_gradient_dtype(dtype_)) << "gradient dtype " << dtype_;
  if (dtype_ == STRATA_DTYPE_BF16) {
    kernels::from_bf16(values, numel, out);
  } else {
    kernels::from_f16(values, numel, out);
  }
}

const float* ScaledGradient::read(int64_t begin, int64_t numel, float* scratch) const {
  if (scale_.max_value == 0) return gradient_.read(begin, numel, scratch);
  copy(begin, numel, scratch);
  return scratch;
}

void ScaledGradient::copy(int64_t begin, int64_t numel, float* out) const {
  gradient_.copy(begin, numel, out);
  if (scale_.max_value > 0) kernels::scale_and_clamp(out, numel, scale_.factor, scale_.max_value);
}

}  // namespace strata::optim
