#include "strata/sdk/opened_unit.h"

#include <string>

namespace strata::sdk {

void OpenedUnit::require_none(const ModelTable& model) const {
  if (unit_ == STRATA_NONE) return;
  throw Error(STRATA_E_STATE,
              "unit '" + model.unit(unit_).name + "' is still open. HINT: close_unit comes first");
}

void OpenedUnit::set(uint32_t unit, int32_t intent) {
  unit_ = unit;
  intent_ = intent;
}

void OpenedUnit::require(uint32_t unit) const {
  if (unit != STRATA_NONE && unit == unit_) return;
  throw Error(STRATA_E_STATE, "unit " + std::to_string(unit) + " is not open");
}

void OpenedUnit::clear() {
  unit_ = STRATA_NONE;
  memory_ = Buffer();
}

float* OpenedUnit::allocate(strata_host_t* host, uint64_t numel) {
  memory_ = Buffer(host, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, numel * sizeof(float),
                   STRATA_MEMORY_COLLECTIVE, "an opened unit");
  return memory_.floats();
}

}  // namespace strata::sdk
