// What a strategy keeps of the model that it attached: units, and the orders in which they come.
#ifndef STRATA_SDK_MODEL_TABLE_H_
#define STRATA_SDK_MODEL_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/abi/strategy.h"

namespace strata::sdk {

struct UnitInfo {
  std::string name;
  uint64_t numel = 0;  // of the flat buffer, padding included
  bool is_trainable = false;
  uint32_t first_entry = 0;  // places in the declared order
  uint32_t last_entry = 0;

  uint64_t bytes() const { return numel * sizeof(float); }
};

class ModelTable {
 public:
  ModelTable() = default;
  // Copies the descriptors. Throws Error if a unit's numel is no multiple of `multiple`, or the
  // order is broken.
  ModelTable(const strata_model_t& model, uint64_t multiple);

  const std::vector<UnitInfo>& units() const { return units_; }
  const UnitInfo& unit(uint32_t index) const { return units_[index]; }
  uint32_t count() const { return static_cast<uint32_t>(units_.size()); }

  // Units in the order in which backward ends them: by falling first entry.
  std::vector<uint32_t> backward_order() const;

  // One line a unit: everything that ranks must agree on.
  const std::string& text() const { return text_; }

 private:
  std::vector<UnitInfo> units_;
  std::string text_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_MODEL_TABLE_H_
