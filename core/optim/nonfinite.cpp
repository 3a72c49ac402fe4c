#include "strata/optim/nonfinite.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "strata/abi/types.h"
#include "strata/base/check.h"
#include "strata/base/text.h"

namespace strata::optim {
namespace {

constexpr size_t kShownNames = 8;

at::ScalarType to_torch(int32_t dtype) {
  switch (dtype) {
    case STRATA_DTYPE_F32: return at::kFloat;
    case STRATA_DTYPE_BF16: return at::kBFloat16;
    case STRATA_DTYPE_F16: return at::kHalf;
    default: STRATA_CHECK(false) << "gradient dtype " << dtype;
  }
  return at::kFloat;
}

bool is_finite(const at::Tensor& values) { return at::isfinite(values).all().item<bool>(); }

}  // namespace

std::vector<int64_t> mark_nonfinite_gradients(const model::ModelSpec& spec,
                                              const std::vector<model::FlatLayout>& layouts,
                                              const std::vector<model::Partition>& partitions) {
  STRATA_CHECK(layouts.size() == spec.units.size());
  std::vector<int64_t> marks;
  std::vector<size_t> first_of_unit;
  for (const model::UnitSpec& unit : spec.units) {
    first_of_unit.push_back(marks.size());
    marks.resize(marks.size() + unit.parameters.size(), 0);
  }
  for (const model::Partition& partition : partitions) {
    if (partition.gradient == nullptr || !partition.is_trainable) continue;
    const auto u = static_cast<size_t>(partition.unit);
    const at::Tensor gradient =
        at::from_blob(partition.gradient, {partition.numel}, to_torch(partition.gradient_dtype));
    if (is_finite(gradient)) continue;
    for (size_t i = 0; i < spec.units[u].parameters.size(); ++i) {
      const int64_t begin = std::max(layouts[u].offsets[i] - partition.offset, int64_t{0});
      const int64_t end =
          std::min(layouts[u].offsets[i] + spec.units[u].parameters[i].numel() - partition.offset,
                   partition.numel);
      if (begin >= end || is_finite(gradient.narrow(0, begin, end - begin))) continue;
      marks[first_of_unit[u] + i] = 1;
    }
  }
  return marks;
}

std::string marked_parameters(const model::ModelSpec& spec, const std::vector<int64_t>& marks) {
  std::vector<std::string> names;
  size_t index = 0;
  for (const model::UnitSpec& unit : spec.units) {
    for (const model::ParameterSpec& parameter : unit.parameters) {
      if (marks.at(index++) != 0) names.push_back("'" + parameter.name + "'");
    }
  }
  if (names.empty()) return "none";
  const size_t shown = std::min(names.size(), kShownNames);
  std::string out = text::join(std::span(names).first(shown));
  if (names.size() > shown) out += fmt::format(" and {} more", names.size() - shown);
  return out;
}

bool is_finite(const float* values, int64_t numel) {
  return is_finite(at::from_blob(const_cast<float*>(values), {numel}, at::kFloat));
}

}  // namespace strata::optim
