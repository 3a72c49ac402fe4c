// What a strategy keeps of the model that it attached: units, and the orders in which they come.
#ifndef STRATA_SDK_MODEL_TABLE_H_
#define STRATA_SDK_MODEL_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"
#include "strata/sdk/dtypes.h"

namespace strata::sdk {

struct UnitInfo {
  std::string name;
  uint64_t numel = 0;         // of the flat buffer, padding included
  bool is_trainable = false;  // false as well if it has no element
  // Frozen units in front of everything that is trained have no backward.
  bool has_backward = false;
  int32_t compute_dtype = STRATA_DTYPE_F32;
  int32_t reduce_dtype = STRATA_DTYPE_F32;
  int32_t accumulate_dtype = STRATA_DTYPE_F32;
  uint32_t first_entry = 0;  // places in the declared order
  uint32_t last_entry = 0;

  // Whole, at rest and on the wire.
  uint64_t parameter_bytes() const { return numel * element_bytes(compute_dtype); }
  uint64_t gradient_bytes() const { return numel * element_bytes(accumulate_dtype); }
  uint64_t wire_bytes() const { return numel * element_bytes(reduce_dtype); }
  // Of masters that are not the parameters.
  uint64_t master_bytes() const {
    return compute_dtype == STRATA_DTYPE_F32 ? 0 : numel * sizeof(float);
  }
  // Whether gradients have another dtype on the wire than at rest.
  bool is_cast() const { return reduce_dtype != accumulate_dtype; }
};

class ModelTable {
 public:
  ModelTable() = default;
  // Copies the descriptors of a model that is laid out. Throws STRATA_E_INVALID_ARGUMENT if a
  // unit's numel is no multiple of `multiple` or the order leaves a unit out.
  ModelTable(const strata_model_t& model, uint64_t multiple);
  // The same of a model that has sizes only, padded as sliced_layout(world) asks. For estimates.
  static ModelTable padded(const strata_model_t& model, uint32_t world);

  const std::vector<UnitInfo>& units() const { return units_; }
  // Throws STRATA_E_INVALID_ARGUMENT beyond the last.
  const UnitInfo& unit(uint32_t index) const;
  uint32_t count() const { return static_cast<uint32_t>(units_.size()); }

  // Units in the order in which backward ends them: by falling first entry.
  std::vector<uint32_t> backward_order() const;
  // Whether forward and backward meet in the unit, so that freeing it between two uses is waste: it
  // is entered first of all or last of all, or more than once.
  //
  //   order 0 1 2 3 0  ->  unit 0;     order 0 1 2 3  ->  units 0 and 3
  bool is_root(uint32_t index) const;

  // Throws STRATA_E_UNSUPPORTED naming the first unit with a dtype that is not kTrainedDtypes.
  void require_dtypes() const;
  // One line a unit and entry: everything that ranks must agree on.
  const std::string& text() const { return text_; }

 private:
  void add_units(const strata_model_t& model);
  void read_order(const strata_model_t& model);
  void find_backward();

  std::vector<UnitInfo> units_;
  uint32_t last_entry_ = 0;
  std::string text_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_MODEL_TABLE_H_
