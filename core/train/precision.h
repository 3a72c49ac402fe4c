// What --precision and the flags beside it mean: dtypes of units, gradients and buffers, and the
// loss scale. docs/NUMERICS.md says what is computed in which.
#ifndef STRATA_TRAIN_PRECISION_H_
#define STRATA_TRAIN_PRECISION_H_

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "strata/config/config.h"
#include "strata/model/unit_spec.h"
#include "strata/optim/loss_scale.h"

namespace strata::train {

struct Precision {
  std::string name = "32";
  model::UnitDtypes units;
  std::optional<at::ScalarType> buffers;  // unset: as the units
  // Of fp16-mixed, one of the two.
  std::optional<optim::LossScaleOptions> dynamic_loss_scale;
  std::optional<double> fixed_loss_scale;
};

// REQUIRES: values that the command line has checked.
Precision make_precision(const std::string& name, const config::PrecisionConfig& config = {});

// The model with all units in these dtypes.
model::ModelSpec with_dtypes(model::ModelSpec spec, const model::UnitDtypes& dtypes);

// "bf16-mixed (units bf16, gradients fp32, sent in fp32, masters fp32)"; "32" alone where all is
// fp32.
std::string precision_text(const Precision& precision);

}  // namespace strata::train

#endif  // STRATA_TRAIN_PRECISION_H_
