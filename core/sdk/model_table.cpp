#include "strata/sdk/model_table.h"

#include <algorithm>
#include <numeric>

#include "strata/sdk/slices.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk {
namespace {

// As the contract says: F32 where the host says nothing.
int32_t accumulate_dtype(const strata_unit_t& unit) {
  return unit.accumulate_dtype == 0 ? STRATA_DTYPE_F32 : unit.accumulate_dtype;
}

std::string describe(const strata_unit_t& unit) {
  std::string text = std::string("unit '") + unit.name + "' numel " + std::to_string(unit.numel) +
                     " dtypes " + std::to_string(unit.compute_dtype) + "/" +
                     std::to_string(unit.reduce_dtype) + "/" +
                     std::to_string(accumulate_dtype(unit)) + ":";
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

Error invalid(const std::string& text) { return {STRATA_E_INVALID_ARGUMENT, text}; }

}  // namespace

ModelTable::ModelTable(const strata_model_t& model, uint64_t multiple) {
  add_units(model);
  for (const UnitInfo& unit : units_) {
    if (unit.numel % multiple == 0) continue;
    throw invalid("unit '" + unit.name + "' has " + std::to_string(unit.numel) +
                  " elements, not a multiple of " + std::to_string(multiple) +
                  ". HINT: lay units out as layout() asks");
  }
  read_order(model);
  find_backward();
}

ModelTable ModelTable::padded(const strata_model_t& model, uint32_t world) {
  ModelTable table;
  table.add_units(model);
  for (uint32_t u = 0; u < model.unit_count; ++u) {
    table.units_[u].numel = padded_numel(model.units[u], world);
  }
  table.read_order(model);
  table.find_backward();
  return table;
}

void ModelTable::add_units(const strata_model_t& model) {
  for (uint32_t u = 0; u < model.unit_count; ++u) {
    const strata_unit_t& unit = model.units[u];
    UnitInfo info;
    info.name = unit.name;
    info.numel = unit.numel;
    info.is_trainable = unit.trainable != 0 && unit.numel > 0;
    info.compute_dtype = unit.compute_dtype;
    info.reduce_dtype = unit.reduce_dtype;
    info.accumulate_dtype = accumulate_dtype(unit);
    info.first_entry = STRATA_NONE;
    units_.push_back(std::move(info));
    text_ += describe(unit);
  }
}

void ModelTable::read_order(const strata_model_t& model) {
  for (uint32_t entry = 0; entry < model.order_count; ++entry) {
    const uint32_t u = model.order[entry];
    if (u >= count()) {
      throw invalid("entry " + std::to_string(entry) + " of the order is unit " +
                    std::to_string(u) + ", the model has " + std::to_string(count()) +
                    ". HINT: units count from 0");
    }
    if (units_[u].first_entry == STRATA_NONE) units_[u].first_entry = entry;
    units_[u].last_entry = last_entry_ = entry;
    text_ += "entry " + std::to_string(u) + "\n";
  }
  for (const UnitInfo& unit : units_) {
    if (unit.first_entry != STRATA_NONE) continue;
    throw invalid("unit '" + unit.name + "' is not in the order of " +
                  std::to_string(model.order_count) +
                  " entries. HINT: declare where it is entered");
  }
}

void ModelTable::find_backward() {
  uint32_t first_trained = STRATA_NONE;
  for (const UnitInfo& unit : units_) {
    if (unit.is_trainable) first_trained = std::min(first_trained, unit.first_entry);
  }
  for (UnitInfo& unit : units_) {
    unit.has_backward =
        unit.is_trainable || (first_trained != STRATA_NONE && unit.last_entry > first_trained);
  }
}

const UnitInfo& ModelTable::unit(uint32_t index) const {
  if (index < count()) return units_[index];
  throw invalid("unit " + std::to_string(index) + " of " + std::to_string(count()) +
                ". HINT: attach a model, count its units from 0");
}

std::vector<uint32_t> ModelTable::backward_order() const {
  std::vector<uint32_t> order(units_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return units_[a].first_entry > units_[b].first_entry; });
  return order;
}

bool ModelTable::is_root(uint32_t index) const {
  const UnitInfo& info = unit(index);
  return info.first_entry == 0 || info.last_entry == last_entry_ ||
         info.first_entry != info.last_entry;
}

void ModelTable::require_dtypes() const {
  for (const UnitInfo& unit : units_) {
    if (is_trained_dtype(unit.compute_dtype) && is_trained_dtype(unit.reduce_dtype) &&
        is_trained_dtype(unit.accumulate_dtype)) {
      continue;
    }
    throw Error(STRATA_E_UNSUPPORTED,
                "unit '" + unit.name + "' computes in dtype " + std::to_string(unit.compute_dtype) +
                    ", reduces in dtype " + std::to_string(unit.reduce_dtype) +
                    " and keeps gradients in dtype " + std::to_string(unit.accumulate_dtype) +
                    ", and f32 (1), bf16 (2) and f16 (3) are supported. HINT: --precision");
  }
}

}  // namespace strata::sdk
