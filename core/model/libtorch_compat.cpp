#include "strata/model/libtorch_compat.h"

#include <torch/headeronly/version.h>

#define STRATA_LIBTORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||            \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace strata::model::libtorch {
namespace {

#if STRATA_LIBTORCH_AT_LEAST(2, 13)

void clear_poison(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }

#else

// An explicit instantiation may name a private member.
template <auto Member>
struct Expose {
  friend auto throwing_flag(int) { return Member; }
};
auto throwing_flag(int);
template struct Expose<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

// The cached check of the mutable accessors is refreshed by set_data_ptr_noswap().
void clear_poison(c10::StorageImpl& storage) { storage.*throwing_flag(0) = false; }

#endif

}  // namespace

const char* version() { return TORCH_VERSION; }

void bind_storage(c10::StorageImpl& storage, void* data) {
  clear_poison(storage);
  storage.set_data_ptr_noswap(c10::DataPtr(data, storage.device()));
}

void poison_storage(c10::StorageImpl& storage, const std::string& message) {
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
}

}  // namespace strata::model::libtorch
