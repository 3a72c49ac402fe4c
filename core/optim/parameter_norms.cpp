#include "strata/optim/parameter_norms.h"

#include <fmt/format.h>

#include <cmath>

namespace strata::optim {

ParameterIndex::ParameterIndex(const model::ModelSpec& spec) {
  for (const model::UnitSpec& unit : spec.units) {
    first_.push_back(names_.size());
    for (const model::ParameterSpec& parameter : unit.parameters) {
      names_.push_back(parameter.name);
      numels_.push_back(parameter.numel());
    }
  }
}

ParameterNorms::ParameterNorms(const ParameterIndex& index)
    : index_(index), sums_(index.size()), norms_(index.size(), 0) {}

void ParameterNorms::add(const Slice& slice, const Values& values) {
  sums_[index_.of(slice.unit, slice.parameter)].add(values, slice.first_block() * 64,
                                                    slice.last_block() * 64);
}

Status ParameterNorms::reduce(const std::string& optimizer, const std::string& what,
                              Reducer& reducer) {
  std::vector<int64_t> all;
  for (NormAccumulator& sum : sums_) {
    const std::vector<int64_t> limbs = sum.limbs();
    all.insert(all.end(), limbs.begin(), limbs.end());
  }
  STRATA_RETURN_IF_ERROR(reducer.sum(all));
  for (size_t i = 0; i < norms_.size(); ++i) {
    const std::span<const int64_t> limbs(all.data() + i * NormAccumulator::kNumbers,
                                         NormAccumulator::kNumbers);
    norms_[i] = NormAccumulator::norm(limbs);
    if (std::isfinite(norms_[i])) continue;
    return internal_error(fmt::format(
        "{}: {} of '{}' is not finite. HINT: a smaller --learning-rate or longer --warmup-steps",
        optimizer, what, index_.name(i)));
  }
  return {};
}

double ParameterNorms::root_mean_square_of(const Slice& slice) const {
  const size_t index = index_.of(slice.unit, slice.parameter);
  return norms_[index] / std::sqrt(static_cast<double>(index_.numel(index)));
}

}  // namespace strata::optim
