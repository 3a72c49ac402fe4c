// Gradients as optimizers and norms read them: in fp32, chunk by chunk, whatever their dtype.
#ifndef STRATA_OPTIM_GRADIENTS_H_
#define STRATA_OPTIM_GRADIENTS_H_

#include <cstdint>
#include <functional>

#include "strata/model/partition.h"

namespace strata::optim {

// Of all gradients of a step: g = cut(gradient * factor) is what formulas call the gradient.
struct GradientScale {
  double factor = 1;
  double max_value = 0;  // g is cut to [-max_value, max_value]; 0: not cut
};

// Elements that are read at a time: 16 KiB in fp32, which stay in the cache.
inline constexpr int64_t kChunk = 4096;

// fp32 values of elements [begin, begin + numel), numel <= kChunk: where they are, or in `scratch`,
// which has room for kChunk.
using Values = std::function<const float*(int64_t begin, int64_t numel, float* scratch)>;

// Calls body(begin, numel) for each chunk of [first, last). A chunk begins at a multiple of 64 if
// `first` does.
template <typename Body>
void for_each_chunk(int64_t first, int64_t last, Body body) {
  for (int64_t begin = first; begin < last; begin += kChunk) {
    body(begin, last - begin < kChunk ? last - begin : kChunk);
  }
}

// Whether gradients of this STRATA_DTYPE_* can be read: fp32, bf16, fp16.
bool is_gradient_dtype(int32_t dtype);

// Whether the optimizer updates it.
bool is_updated(const model::Partition& partition);

// The gradient of a partition, or a part of it. Reading leaves it as it is.
class Gradient {
 public:
  Gradient() = default;
  // REQUIRES: is_gradient_dtype(dtype)
  Gradient(const void* data, int32_t dtype) : data_(data), dtype_(dtype) {}
  explicit Gradient(const model::Partition& partition)
      : Gradient(partition.gradient, partition.gradient_dtype) {}

  // From element `offset` on.
  Gradient from(int64_t offset) const;
  // The memory, if it is fp32; else null.
  const float* in_place() const;
  // As Values.
  const float* read(int64_t begin, int64_t numel, float* scratch) const;
  // Any number of elements into `out`.
  void copy(int64_t begin, int64_t numel, float* out) const;

 private:
  const void* data_ = nullptr;
  int32_t dtype_ = 1;
};

// A gradient under a scale. What is read times factor() is g.
class ScaledGradient {
 public:
  ScaledGradient(const Gradient& gradient, const GradientScale& scale)
      : gradient_(gradient), scale_(scale) {}

  // The factor that is left to the reader: cutting needs it done.
  static double factor(const GradientScale& scale) {
    return scale.max_value > 0 ? 1.0 : scale.factor;
  }
  // As Values.
  const float* read(int64_t begin, int64_t numel, float* scratch) const;
  void copy(int64_t begin, int64_t numel, float* out) const;

 private:
  Gradient gradient_;
  GradientScale scale_;
};

}  // namespace strata::optim

#endif  // STRATA_OPTIM_GRADIENTS_H_
