#include "strata/model/unit_spec.h"

#include <algorithm>

#include "strata/base/check.h"

namespace strata::model {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t ParameterSpec::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

bool UnitSpec::is_trainable() const {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const ParameterSpec& parameter) { return parameter.is_trainable; });
}

FlatLayout make_flat_layout(const UnitSpec& unit, int64_t alignment, int64_t multiple) {
  STRATA_CHECK(alignment > 0 && (alignment & (alignment - 1)) == 0) << "alignment " << alignment;
  STRATA_CHECK(multiple > 0 && multiple % alignment == 0)
      << "multiple " << multiple << ", alignment " << alignment;
  FlatLayout layout;
  int64_t end = 0;  // of the parameters so far
  const auto skip_to = [&](int64_t offset) {
    if (offset > end) layout.gaps.push_back({end, offset});
    end = offset;
  };
  for (const ParameterSpec& parameter : unit.parameters) {
    skip_to(round_up(end, alignment));
    layout.offsets.push_back(end);
    end += parameter.numel();
  }
  skip_to(round_up(end, multiple));
  layout.numel = end;
  return layout;
}

}  // namespace strata::model
