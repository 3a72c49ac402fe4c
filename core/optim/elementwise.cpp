// SGD with momentum (Sutskever et al. 2013, as torch.optim.SGD with dampening 0), Adagrad (Duchi et
// al. 2011) and Lion (Chen et al. 2023): one loop over each slice.
#include "strata/optim/kernels.h"
#include "strata/optim/registry.h"
#include "strata/optim/slices.h"

namespace strata::optim {
namespace {

using Kernel = void (*)(const kernels::Rule& rule, const kernels::Arrays& arrays);

struct Method {
  std::vector<const char*> kinds;
  Kernel kernel = nullptr;
};

Method method_of(const OptimizerOptions& options) {
  if (options.name == "adagrad") return {{"sum"}, kernels::adagrad};
  if (options.name == "lion") return {{"exp_avg"}, kernels::lion};
  if (options.momentum == 0) return {{}, kernels::sgd};
  return {{"momentum_buffer"}, kernels::sgd_momentum};
}

class Elementwise final : public SlicedOptimizer {
 public:
  explicit Elementwise(const OptimizerOptions& options)
      : SlicedOptimizer(options.name), method_(method_of(options)) {
    rule_.beta1 = options.beta1;
    rule_.beta2 = options.beta2;
    rule_.epsilon = options.epsilon;
    rule_.momentum = options.momentum;
    rule_.nesterov = options.nesterov;
  }

  Status lay_out(const OptimizerInput& input) {
    return SlicedOptimizer::lay_out(input, method_.kinds, Joining::kNeighboursOfOneGroup);
  }

 protected:
  Status update(double learning_rate, const GradientScale& scale, Reducer&) override {
    for (const Slice& slice : slices_) {
      const ParameterGroup& group = groups_[static_cast<size_t>(slice.group)];
      kernels::Rule rule = rule_;
      rule.learning_rate = learning_rate * group.lr_multiplier;
      rule.weight_decay = group.weight_decay;
      rule.factor = ScaledGradient::factor(scale);
      for_each_chunk_of(slice, scale,
                        [&](const kernels::Arrays& arrays) { method_.kernel(rule, arrays); });
    }
    return {};
  }

 private:
  Method method_;
  kernels::Rule rule_;
};

}  // namespace

MadeOptimizer make_elementwise(const OptimizerOptions& options, const OptimizerInput& input) {
  auto optimizer = std::make_unique<Elementwise>(options);
  STRATA_RETURN_IF_ERROR(optimizer->lay_out(input));
  return std::unique_ptr<Optimizer>(std::move(optimizer));
}

}  // namespace strata::optim
