// Matrix products at the speed of the machine.
//
// Note [oneDNN for fp32]
// LibTorch has two libraries for matrix products on CPU: MKL, which it takes for fp32, and oneDNN,
// which it takes for 16-bit numbers. On processors with AVX2 or AVX-512 that are not Intel's,
// oneDNN is the faster one for fp32 too: 95-105 GFLOP/s a core against 65-95 on an EPYC 9004, most
// for the head's long rows. So fp32 products that are large enough to matter go there, by functions
// that libtorch_cpu exports without a header; where a LibTorch lacks them, to LibTorch's usual
// place.
#ifndef STRATA_ZOO_MATMUL_H_
#define STRATA_ZOO_MATMUL_H_

#include <ATen/core/Tensor.h>

namespace strata::zoo {

// out (M, N) = a (M, K) b (K, N), or out += with `adds`. a and b may be transposed views; out is
// contiguous. Nothing here is seen by autograd.
void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds);

// a (M, K) b (K, N).
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

// x (M, K) w (K, N) + bias (N).
at::Tensor affine(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_MATMUL_H_
