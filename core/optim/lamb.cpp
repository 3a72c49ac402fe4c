// LAMB (You et al. 2020, algorithm 2): Adam's direction plus decay, with a length that is the
// parameter's norm. Both norms are taken over the whole parameter, whatever the sharding: blocks of
// 64 squares are added up exactly over slices and ranks.
#include <cmath>

#include "strata/optim/kernels.h"
#include "strata/optim/norm.h"
#include "strata/optim/parameter_norms.h"
#include "strata/optim/registry.h"
#include "strata/optim/slices.h"

namespace strata::optim {
namespace {

constexpr const char* kKinds[] = {"exp_avg", "exp_avg_sq"};

class Lamb final : public SlicedOptimizer {
 public:
  Lamb(const OptimizerOptions& options, const model::ModelSpec& spec)
      : SlicedOptimizer(options.name), options_(options), parameters_(spec) {}

  Status lay_out(const OptimizerInput& input) {
    return SlicedOptimizer::lay_out(input, kKinds, Joining::kNothing);
  }

 protected:
  Status update(double learning_rate, const GradientScale& scale, Reducer& reducer) override {
    ParameterNorms weights(parameters_);
    ParameterNorms directions(parameters_);
    for (const Slice& slice : slices_) {
      const kernels::Rule rule = rule_of(slice, scale);
      for_each_chunk_of(slice, scale, [&](const kernels::Arrays& arrays) {
        kernels::lamb_moments(rule, arrays);
      });
      weights.add(slice, [&](int64_t begin, int64_t, float*) { return slice.master + begin; });
      directions.add(slice, directions_of(slice, rule));
    }
    STRATA_RETURN_IF_ERROR(weights.reduce(name(), "weights", reducer));
    STRATA_RETURN_IF_ERROR(directions.reduce(name(), "the update", reducer));
    for (const Slice& slice : slices_) {
      const double weight = weights.norm_of(slice);
      const double direction = directions.norm_of(slice);
      const double ratio = weight > 0 && direction > 0 ? weight / direction : 1;
      const double rate =
          learning_rate * groups_[static_cast<size_t>(slice.group)].lr_multiplier * ratio;
      apply_directions(slice, directions_of(slice, rule_of(slice, scale)), 1, rate);
    }
    return {};
  }

 private:
  kernels::Rule rule_of(const Slice& slice, const GradientScale& scale) const {
    const auto t = static_cast<double>(step_count());
    kernels::Rule rule;
    rule.factor = ScaledGradient::factor(scale);
    rule.beta1 = options_.beta1;
    rule.beta2 = options_.beta2;
    rule.epsilon = options_.epsilon;
    rule.correction1 = 1 - std::pow(options_.beta1, t);
    rule.correction2 = 1 - std::pow(options_.beta2, t);
    rule.weight_decay = groups_[static_cast<size_t>(slice.group)].weight_decay;
    return rule;
  }

  // Computed twice, for the norm and for the update: no memory is as long as a slice but the
  // states.
  static Values directions_of(const Slice& slice, const kernels::Rule& rule) {
    return [&slice, rule](int64_t begin, int64_t numel, float* scratch) {
      kernels::lamb_direction(rule, arrays_at(slice, begin, numel), scratch);
      return scratch;
    };
  }

  OptimizerOptions options_;
  ParameterIndex parameters_;
};

}  // namespace

MadeOptimizer make_lamb(const OptimizerOptions& options, const OptimizerInput& input) {
  auto lamb = std::make_unique<Lamb>(options, input.spec);
  STRATA_RETURN_IF_ERROR(lamb->lay_out(input));
  return std::unique_ptr<Optimizer>(std::move(lamb));
}

}  // namespace strata::optim
