#include "strata/strategy/describe.h"

#include <algorithm>

#include "strata/base/check.h"

namespace strata::strategy {
namespace {

std::vector<strata_parameter_t> describe_parameters(const model::UnitSpec& unit,
                                                    const model::FlatLayout* layout) {
  std::vector<strata_parameter_t> out;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const model::ParameterSpec& spec = unit.parameters[i];
    strata_parameter_t parameter{};
    parameter.struct_size = sizeof(parameter);
    parameter.dimensions = static_cast<uint32_t>(spec.shape.size());
    parameter.name = spec.name.c_str();
    parameter.shape = spec.shape.data();
    parameter.offset = layout == nullptr ? 0 : static_cast<uint64_t>(layout->offsets[i]);
    parameter.numel = static_cast<uint64_t>(spec.numel());
    parameter.trainable = spec.is_trainable ? 1 : 0;
    out.push_back(parameter);
  }
  return out;
}

uint64_t unpadded_numel(const model::UnitSpec& unit) {
  uint64_t sum = 0;
  for (const model::ParameterSpec& parameter : unit.parameters) {
    sum += static_cast<uint64_t>(parameter.numel());
  }
  return sum;
}

}  // namespace

ModelDescription::ModelDescription(const model::ModelSpec& spec,
                                   const std::vector<model::FlatLayout>& layouts) {
  STRATA_CHECK(layouts.empty() || layouts.size() == spec.units.size());
  parameters_.reserve(spec.units.size());
  for (size_t u = 0; u < spec.units.size(); ++u) {
    const model::UnitSpec& unit = spec.units[u];
    const model::FlatLayout* layout = layouts.empty() ? nullptr : &layouts[u];
    parameters_.push_back(describe_parameters(unit, layout));
    strata_unit_t out{};
    out.struct_size = sizeof(out);
    out.parameter_count = static_cast<uint32_t>(unit.parameters.size());
    out.name = unit.name.c_str();
    out.parameters = parameters_.back().data();
    out.numel = layout == nullptr ? unpadded_numel(unit) : static_cast<uint64_t>(layout->numel);
    out.compute_dtype = unit.dtypes.compute;
    out.reduce_dtype = unit.dtypes.reduce;
    out.accumulate_dtype = unit.dtypes.accumulate;
    out.entries = static_cast<uint32_t>(
        std::count(spec.order.begin(), spec.order.end(), static_cast<int>(u)));
    out.trainable = unit.is_trainable() ? 1 : 0;
    units_.push_back(out);
  }
  order_.assign(spec.order.begin(), spec.order.end());
  model_.struct_size = sizeof(model_);
  model_.unit_count = static_cast<uint32_t>(units_.size());
  model_.units = units_.data();
  model_.order_count = static_cast<uint32_t>(order_.size());
  model_.order = order_.data();
}

}  // namespace strata::strategy
