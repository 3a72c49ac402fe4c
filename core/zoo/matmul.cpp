#include "strata/zoo/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <optional>
#include <string_view>

// Exported by libtorch_cpu 2.11 to 2.15, declared in no header of theirs. Weak: null where a
// LibTorch has them no longer.
namespace at::native {
[[gnu::weak, gnu::visibility("default")]] void mkldnn_matmul(const at::Tensor& a,
                                                             const at::Tensor& b,
                                                             const at::Tensor& out, float beta,
                                                             float alpha);
[[gnu::weak, gnu::visibility("default")]] at::Tensor mkldnn_linear_pointwise(
    const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    std::string_view activation, c10::List<std::optional<at::Scalar>> scalars,
    std::optional<std::string_view> algorithm);
}  // namespace at::native

namespace strata::zoo {
namespace {

// Below it, what oneDNN does around a product costs more than it saves.
constexpr int64_t kSmallProduct = 1 << 20;

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.numel() > 0;
}

bool is_for_onednn(const at::Tensor& a, const at::Tensor& b) {
  return is_plain(a) && is_plain(b) && a.size(0) * a.size(1) * b.size(1) >= kSmallProduct &&
         at::native::mkldnn_matmul != nullptr && at::native::mkldnn_linear_pointwise != nullptr &&
         at::globalContext().hasMKLDNN() && at::globalContext().userEnabledMkldnn();
}

}  // namespace

void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (is_for_onednn(a, b) && out.is_contiguous()) {
    at::native::mkldnn_matmul(a, b, out, adds ? 1.0F : 0.0F, 1.0F);
    return;
  }
  at::Tensor target = out;
  if (adds) {
    target.addmm_(a, b);
  } else {
    at::mm_out(target, a, b);
  }
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply_into(out, a, b, false);
  return out;
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!is_for_onednn(x, w)) return at::addmm(bias, x, w);
  return at::native::mkldnn_linear_pointwise(x, w.t(), bias, "none",
                                             c10::List<std::optional<at::Scalar>>(), "");
}

}  // namespace strata::zoo
