#include "strata/model/unit_storage.h"

#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <fmt/format.h>

#include <utility>

#include "strata/base/check.h"
#include "strata/model/libtorch_compat.h"

namespace strata::model {
namespace {

c10::Storage make_storage(int64_t nbytes, at::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(nbytes), c10::DataPtr(nullptr, device),
      /*allocator=*/nullptr, /*resizable=*/false));
}

at::Tensor make_view(const c10::Storage& storage, at::ScalarType dtype, int64_t offset,
                     const std::vector<int64_t>& shape) {
  const c10::DispatchKey key = c10::computeDispatchKey(dtype, c10::kStrided, storage.device());
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_storage_offset(offset);
  view.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return view;
}

}  // namespace

UnitStorage::UnitStorage(UnitSpec spec, FlatLayout layout, at::ScalarType dtype, at::Device device)
    : spec_(std::move(spec)), layout_(std::move(layout)), dtype_(dtype) {
  STRATA_CHECK(layout_.offsets.size() == spec_.parameters.size())
      << "unit '" << spec_.name << "' has " << spec_.parameters.size() << " parameters, its layout "
      << layout_.offsets.size();
  poison_ = fmt::format(
      "unit '{}' is not gathered: its parameters were used outside of the unit's turn. "
      "HINT: use them only inside the body that UnitRunner::enter runs for this unit",
      spec_.name);
  storage_ = make_storage(nbytes(), device);
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    at::Tensor view = make_view(storage_, dtype_, layout_.offsets[i], spec_.parameters[i].shape);
    view.set_requires_grad(spec_.parameters[i].is_trainable);
    parameters_.push_back(std::move(view));
  }
  unbind();
}

int64_t UnitStorage::nbytes() const {
  return layout_.numel * static_cast<int64_t>(c10::elementSize(dtype_));
}

void UnitStorage::bind(void* data) {
  STRATA_CHECK(data != nullptr || layout_.numel == 0)
      << "unit '" << spec_.name << "' bound to null";
  libtorch::bind_storage(*storage_.unsafeGetStorageImpl(), data);
  data_ = data;
  is_bound_ = true;
}

void UnitStorage::unbind() {
  libtorch::poison_storage(*storage_.unsafeGetStorageImpl(), poison_);
  data_ = nullptr;
  is_bound_ = false;
}

}  // namespace strata::model
