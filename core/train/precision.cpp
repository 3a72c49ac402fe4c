#include "strata/train/precision.h"

#include <fmt/format.h>

#include <utility>

#include "strata/base/check.h"

namespace strata::train {
namespace {

struct Dtype {
  const char* name;
  int32_t abi;
  at::ScalarType torch;
};

constexpr Dtype kDtypes[] = {{"fp32", STRATA_DTYPE_F32, at::kFloat},
                             {"bf16", STRATA_DTYPE_BF16, at::kBFloat16},
                             {"fp16", STRATA_DTYPE_F16, at::kHalf}};

const Dtype& dtype_of(const std::string& name) {
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return dtype;
  }
  STRATA_CHECK(false) << "dtype '" << name << "'";
  return kDtypes[0];
}

const char* name_of(int32_t abi) {
  for (const Dtype& dtype : kDtypes) {
    if (abi == dtype.abi) return dtype.name;
  }
  return "?";
}

optim::LossScaleOptions loss_scale_options(const config::PrecisionConfig& config) {
  optim::LossScaleOptions options;
  options.rule = config.loss_scale_rule == "torch" ? optim::LossScaleRule::kTorch
                                                   : optim::LossScaleRule::kDeepSpeed;
  options.init_scale = config.init_scale;
  options.growth_interval = config.loss_scale_window;
  options.hysteresis = config.hysteresis;
  options.consecutive_hysteresis = config.consecutive_hysteresis;
  options.min_scale = config.min_loss_scale;
  return options;
}

}  // namespace

Precision make_precision(const std::string& name, const config::PrecisionConfig& config) {
  Precision precision;
  precision.name = name;
  const std::string of_units = name == "32" ? "fp32" : name.substr(0, 4);
  const std::string of_gradients = name == "bf16-true" ? "bf16" : "fp32";
  const auto chosen = [](const std::string& given, const std::string& otherwise) {
    return dtype_of(given.empty() ? otherwise : given).abi;
  };
  precision.units.compute = dtype_of(of_units).abi;
  precision.units.reduce = chosen(config.reduce_dtype, of_gradients);
  precision.units.accumulate = chosen(config.grad_accum_dtype, of_gradients);
  if (!config.buffer_dtype.empty()) precision.buffers = dtype_of(config.buffer_dtype).torch;
  if (name != "fp16-mixed") return precision;
  if (config.loss_scale > 0) {
    precision.fixed_loss_scale = config.loss_scale;
  } else {
    precision.dynamic_loss_scale = loss_scale_options(config);
  }
  return precision;
}

model::ModelSpec with_dtypes(model::ModelSpec spec, const model::UnitDtypes& dtypes) {
  for (model::UnitSpec& unit : spec.units) unit.dtypes = dtypes;
  return spec;
}

std::string precision_text(const Precision& precision) {
  if (precision.units == model::UnitDtypes{}) return precision.name;
  return fmt::format("{} (units {}, gradients {}, sent in {}, masters fp32)", precision.name,
                     name_of(precision.units.compute), name_of(precision.units.accumulate),
                     name_of(precision.units.reduce));
}

}  // namespace strata::train
