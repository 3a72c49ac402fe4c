#include "strata/sdk/model_table.h"

#include <algorithm>
#include <numeric>

#include "strata/sdk/strategy.h"

namespace strata::sdk {
namespace {

std::string describe(const strata_unit_t& unit) {
  std::string text = std::string("unit '") + unit.name + "' numel " + std::to_string(unit.numel) +
                     " dtypes " + std::to_string(unit.compute_dtype) + "/" +
                     std::to_string(unit.reduce_dtype) + ":";
  for (uint32_t i = 0; i < unit.parameter_count; ++i) {
    const strata_parameter_t& parameter = unit.parameters[i];
    text += std::string(" ") + parameter.name + "[";
    for (uint32_t d = 0; d < parameter.dimensions; ++d) {
      text += (d == 0 ? "" : ",") + std::to_string(parameter.shape[d]);
    }
    text += std::string("]@") + std::to_string(parameter.offset) +
            (parameter.trainable != 0 ? "" : " frozen");
  }
  return text + "\n";
}

}  // namespace

ModelTable::ModelTable(const strata_model_t& model, uint64_t multiple) {
  for (uint32_t u = 0; u < model.unit_count; ++u) {
    const strata_unit_t& unit = model.units[u];
    if (unit.numel % multiple != 0) {
      throw Error(STRATA_E_INVALID_ARGUMENT,
                  std::string("unit '") + unit.name + "' has " + std::to_string(unit.numel) +
                      " elements, not a multiple of " + std::to_string(multiple) +
                      ". HINT: lay units out as layout() asks");
    }
    UnitInfo info;
    info.name = unit.name;
    info.numel = unit.numel;
    info.is_trainable = unit.trainable != 0;
    info.first_entry = STRATA_NONE;
    units_.push_back(std::move(info));
    text_ += describe(unit);
  }
  for (uint32_t entry = 0; entry < model.order_count; ++entry) {
    const uint32_t u = model.order[entry];
    if (u >= model.unit_count) {
      throw Error(STRATA_E_INVALID_ARGUMENT, "the order names unit " + std::to_string(u) + " of " +
                                                 std::to_string(model.unit_count));
    }
    if (units_[u].first_entry == STRATA_NONE) units_[u].first_entry = entry;
    units_[u].last_entry = entry;
    text_ += "entry " + std::to_string(u) + "\n";
  }
}

std::vector<uint32_t> ModelTable::backward_order() const {
  std::vector<uint32_t> order(units_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return units_[a].first_entry > units_[b].first_entry; });
  return order;
}

}  // namespace strata::sdk
