// The loss scale against reference traces, and the names of parameters that overflow.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "strata/abi/types.h"
#include "strata/formats/json.h"
#include "strata/optim/loss_scale.h"
#include "strata/optim/nonfinite.h"

namespace strata::optim {
namespace {

using formats::Json;

// [[value, how many], ...] as a plain list.
template <typename T>
std::vector<T> unrolled(const Json& runs) {
  std::vector<T> out;
  for (const Json& run : runs) out.insert(out.end(), run.at(1).get<size_t>(), run.at(0).get<T>());
  return out;
}

LossScaleOptions options_of(const Json& trace) {
  LossScaleOptions options;
  options.init_scale = trace.at("init_scale");
  if (trace.at("kind") == "torch") {
    options.rule = LossScaleRule::kTorch;
    options.growth_factor = trace.at("growth_factor");
    options.backoff_factor = trace.at("backoff_factor");
    options.growth_interval = trace.at("growth_interval");
    options.min_scale = 0;
  } else {
    options.growth_factor = trace.at("scale_factor");
    options.backoff_factor = 1 / options.growth_factor;
    options.growth_interval = trace.at("scale_window");
    options.hysteresis = trace.at("hysteresis");
    options.consecutive_hysteresis = trace.at("consecutive_hysteresis");
    options.min_scale = trace.at("min_scale");
  }
  return options;
}

// Follows one trace; half way the state goes into a new scaler, as a resumed run does it.
void follow(const Json& trace) {
  SCOPED_TRACE(trace.at("name").get<std::string>());
  const auto overflows = unrolled<int>(trace.at("found_inf"));
  const auto scales = unrolled<double>(trace.at("scale_after"));
  const auto allowances = unrolled<int64_t>(trace.value("hysteresis_after", Json::array()));
  LossScale scale(options_of(trace));
  for (size_t step = 0; step < overflows.size(); ++step) {
    const LossScale::Outcome outcome = scale.update(overflows[step] != 0);
    EXPECT_EQ(outcome == LossScale::Outcome::kGood, overflows[step] == 0) << "step " << step;
    if (trace.value("error_at_min_scale", false)) {
      const bool is_end = step == trace.at("error_at_step").get<size_t>();
      ASSERT_EQ(outcome == LossScale::Outcome::kAtMinimum, is_end) << "step " << step;
      if (is_end) return;
    }
    ASSERT_LT(step, scales.size());
    ASSERT_EQ(scale.scale(), scales[step]) << "step " << step;
    if (!allowances.empty()) {
      ASSERT_EQ(scale.state().hysteresis, allowances[step]) << "step " << step;
    }
    if (step == overflows.size() / 2) {
      LossScale resumed(options_of(trace));
      resumed.restore(scale.state());
      scale = resumed;
    }
  }
  if (trace.contains("growth_tracker_last")) {
    EXPECT_EQ(scale.state().good_steps, trace.at("growth_tracker_last").get<int64_t>());
  }
}

TEST(LossScale, FollowsTheReferenceTracesStepByStep) {
  std::ifstream file(STRATA_SOURCE_DIR "/tests/data/parity/loss-scale/traces.jsonl");
  int torch = 0;
  int deepspeed = 0;
  for (std::string line; std::getline(file, line);) {
    const Json trace = Json::parse(line);
    ++(trace.at("kind") == "torch" ? torch : deepspeed);
    follow(trace);
  }
  EXPECT_EQ(torch, 6);
  EXPECT_EQ(deepspeed, 8);
}

TEST(LossScale, StartsWithTheFieldsDefaults) {
  LossScale scale({});
  EXPECT_EQ(scale.scale(), 65536);
  EXPECT_EQ(scale.update(true), LossScale::Outcome::kSkip);
  EXPECT_EQ(scale.scale(), 65536) << "the first overflow uses the allowance";
  EXPECT_EQ(scale.update(true), LossScale::Outcome::kSkip);
  EXPECT_EQ(scale.scale(), 32768);
}

TEST(LossScale, NeverFallsToZero) {
  LossScaleOptions options;
  options.rule = LossScaleRule::kTorch;
  options.min_scale = 0;
  LossScale scale(options);
  LossScale::Outcome outcome = LossScale::Outcome::kSkip;
  for (int step = 0; step < 300; ++step) outcome = scale.update(true);
  EXPECT_EQ(outcome, LossScale::Outcome::kAtMinimum);
  EXPECT_GT(static_cast<float>(scale.scale()), 0.0F);
}

// ---- names ----

// Two units in slices of 64: "a" has 100 elements in two slices, "b" 10, "c" 70.
struct Gradients {
  Gradients() {
    spec.units = {{"u", {{"a", {100}}, {"b", {10}}}}, {"v", {{"c", {7, 10}}}}};
    spec.order = {0, 1};
    for (const model::UnitSpec& unit : spec.units) {
      layouts.push_back(model::make_flat_layout(unit, 64, 64));
      values.push_back(at::zeros({layouts.back().numel}));
    }
  }
  std::vector<int64_t> marks(at::ScalarType dtype, int32_t abi_dtype) {
    std::vector<model::Partition> partitions;
    std::vector<at::Tensor> memory;
    for (size_t u = 0; u < spec.units.size(); ++u) {
      memory.push_back(values[u].to(dtype));
      for (int64_t at = 0; at < layouts[u].numel; at += 64) {
        model::Partition partition;
        partition.unit = static_cast<int>(u);
        partition.offset = at;
        partition.numel = 64;
        partition.gradient = memory[u].narrow(0, at, 64).data_ptr();
        partition.gradient_dtype = abi_dtype;
        partitions.push_back(partition);
      }
    }
    return mark_nonfinite_gradients(spec, layouts, partitions);
  }
  model::ModelSpec spec;
  std::vector<model::FlatLayout> layouts;
  std::vector<at::Tensor> values;
};

TEST(NonfiniteGradients, AreNamedInEveryDtypeAndSlice) {
  const std::pair<at::ScalarType, int32_t> dtypes[] = {{at::kFloat, STRATA_DTYPE_F32},
                                                       {at::kBFloat16, STRATA_DTYPE_BF16},
                                                       {at::kHalf, STRATA_DTYPE_F16}};
  for (const auto& [dtype, abi_dtype] : dtypes) {
    Gradients gradients;
    EXPECT_EQ(gradients.marks(dtype, abi_dtype), (std::vector<int64_t>{0, 0, 0}));
    gradients.values[0][99] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(gradients.marks(dtype, abi_dtype), (std::vector<int64_t>{1, 0, 0}));
    gradients.values[0][99] = 0;
    gradients.values[0][128] = -std::numeric_limits<float>::infinity();
    gradients.values[1][69] = std::nanf("");
    const std::vector<int64_t> marks = gradients.marks(dtype, abi_dtype);
    EXPECT_EQ(marks, (std::vector<int64_t>{0, 1, 1}));
    EXPECT_EQ(marked_parameters(gradients.spec, marks), "'b', 'c'");
  }
}

TEST(NonfiniteGradients, OverflowWhereTheDtypeEnds) {
  Gradients gradients;
  gradients.values[0][0] = 70000;
  EXPECT_EQ(gradients.marks(at::kBFloat16, STRATA_DTYPE_BF16), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(gradients.marks(at::kHalf, STRATA_DTYPE_F16), (std::vector<int64_t>{1, 0, 0}));
}

TEST(NonfiniteGradients, OfManyParametersAreCounted) {
  model::ModelSpec spec;
  spec.units.emplace_back();
  for (int i = 0; i < 11; ++i) spec.units[0].parameters.push_back({"p" + std::to_string(i), {1}});
  EXPECT_EQ(marked_parameters(spec, std::vector<int64_t>(11, 1)),
            "'p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6', 'p7' and 3 more");
  EXPECT_EQ(marked_parameters(spec, std::vector<int64_t>(11, 0)), "none");
}

}  // namespace
}  // namespace strata::optim
