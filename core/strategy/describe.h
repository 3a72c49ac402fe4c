// A ModelSpec in the words of the contract: descriptors with the memory behind their pointers.
#ifndef STRATA_STRATEGY_DESCRIBE_H_
#define STRATA_STRATEGY_DESCRIBE_H_

#include <vector>

#include "strata/abi/strategy.h"
#include "strata/model/unit_spec.h"

namespace strata::strategy {

class ModelDescription {
 public:
  // Without layouts: sizes only, as layout() and estimate() want them. With them (one a unit):
  // offsets and padded sizes.
  ModelDescription(const model::ModelSpec& spec, const std::vector<model::FlatLayout>& layouts);
  ModelDescription(const ModelDescription&) = delete;
  ModelDescription& operator=(const ModelDescription&) = delete;

  // Valid as long as this object and the spec live.
  const strata_model_t& model() const { return model_; }
  const strata_unit_t& unit(int index) const { return units_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::vector<strata_parameter_t>> parameters_;
  std::vector<strata_unit_t> units_;
  std::vector<uint32_t> order_;
  strata_model_t model_{};
};

}  // namespace strata::strategy

#endif  // STRATA_STRATEGY_DESCRIBE_H_
