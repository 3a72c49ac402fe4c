// The one place that knows in what LibTorch's versions differ: 2.11 is the oldest supported, 2.15
// the default.
//
//   what                       2.11                               from 2.13 on
//   making a storage usable    a private flag, reached by an clear_data_ptr_access_error_msg_()
//   again after poisoning      explicit template instantiation
//
// In both, poisoning leaves nbytes and the data pointer as they are, and set_data_ptr_noswap()
// leaves the poison.
#ifndef STRATA_MODEL_LIBTORCH_COMPAT_H_
#define STRATA_MODEL_LIBTORCH_COMPAT_H_

#include <c10/core/StorageImpl.h>

#include <string>

namespace strata::model::libtorch {

// For example "2.15.0".
const char* version();

// Makes the storage point to `data`, which it does not own, and usable. nbytes stays.
void bind_storage(c10::StorageImpl& storage, void* data);

// Takes the pointer away; from now on every access of the content throws c10::Error with `message`.
// nbytes stays.
void poison_storage(c10::StorageImpl& storage, const std::string& message);

}  // namespace strata::model::libtorch

#endif  // STRATA_MODEL_LIBTORCH_COMPAT_H_
