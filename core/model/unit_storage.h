// The memory of one unit as LibTorch sees it: one StorageImpl, parameters as views into it.
//
// Binding swaps the storage's data pointer; views that autograd saved follow. While unbound the
// storage is poisoned: any access throws `unit 'block.3' is not gathered ...`. The StorageImpl is
// never resized and never exchanged.
#ifndef STRATA_MODEL_UNIT_STORAGE_H_
#define STRATA_MODEL_UNIT_STORAGE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <string>
#include <vector>

#include "strata/model/unit_spec.h"

namespace strata::model {

class UnitStorage {
 public:
  // Starts unbound. Parameters are leaves with requires_grad set as the spec says.
  UnitStorage(UnitSpec spec, FlatLayout layout, at::ScalarType dtype = at::kFloat,
              at::Device device = at::kCPU);
  UnitStorage(const UnitStorage&) = delete;
  UnitStorage& operator=(const UnitStorage&) = delete;

  // Makes the parameters views of `data`: layout().numel elements, borrowed until unbind() or the
  // next bind(). `data` may be null only if numel is 0. Unbinding twice is legal.
  void bind(void* data);
  void unbind();
  bool is_bound() const { return is_bound_; }
  void* data() const { return data_; }

  const UnitSpec& spec() const { return spec_; }
  const FlatLayout& layout() const { return layout_; }
  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return storage_.device(); }
  int64_t nbytes() const;

  // One per ParameterSpec, in order. Always the same tensors.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const at::Tensor& parameter(size_t index) const { return parameters_.at(index); }

  // Counts writes to the content that version counters do not see (updates of masters, loads).
  // Stamped in forward, compared in backward.
  uint64_t epoch() const { return epoch_; }
  void advance_epoch() { ++epoch_; }

 private:
  UnitSpec spec_;
  FlatLayout layout_;
  at::ScalarType dtype_;
  c10::Storage storage_;
  std::vector<at::Tensor> parameters_;
  std::string poison_;  // what an access while unbound says
  void* data_ = nullptr;
  bool is_bound_ = false;
  uint64_t epoch_ = 0;
};

}  // namespace strata::model

#endif  // STRATA_MODEL_UNIT_STORAGE_H_
