// Optimizers over partitions: values of other software, and the same bits however units are sliced.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/unit/optim_fixture.h"

namespace strata::optim {
namespace {

using Json = nlohmann::json;

std::vector<OptimizerOptions> all_options() {
  std::vector<OptimizerOptions> out;
  for (const std::string& name : optimizer_names()) {
    OptimizerOptions options;
    options.name = name;
    out.push_back(options);
    if (name == "sgd") {
      options.momentum = 0.9;
      out.push_back(options);
      options.nesterov = true;
      out.push_back(options);
    }
    if (name == "adafactor") {
      options.scale_parameter = true;
      out.push_back(options);
    }
  }
  return out;
}

const std::vector<GroupRule> kRules = {{"^v$", 0.5, 0.0}, {"b|c", 2, 0.3}};

// In halves, thirds, at random, and as copies.
void expect_same_bits_for_every_slicing(const Recipe& recipe, std::mt19937& random) {
  const TestUnit unit;
  const int64_t blocks = unit.numel / 64;
  const Trained whole = train(unit, {0, unit.numel}, recipe);
  EXPECT_EQ(train(unit, {0, blocks / 2 * 64, unit.numel}, recipe), whole) << "halves";
  EXPECT_EQ(train(unit, {0, blocks / 3 * 64, blocks * 2 / 3 * 64, unit.numel}, recipe), whole)
      << "thirds";
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(train(unit, random_cuts(blocks, 2 + round, random), recipe), whole) << round;
  }
  EXPECT_EQ(train(unit, {0, unit.numel}, recipe, 3), whole) << "3 copies";
}

TEST(Optimizer, GivesTheSameBitsForEverySlicing) {
  std::mt19937 random(21);
  for (const OptimizerOptions& options : all_options()) {
    for (const double max_value : {0.0, 0.05}) {
      for (const int32_t dtype : {STRATA_DTYPE_F32, STRATA_DTYPE_BF16, STRATA_DTYPE_F16}) {
        SCOPED_TRACE(options.name + ", dtype " + std::to_string(dtype));
        Recipe recipe;
        recipe.options = options;
        recipe.rules = kRules;
        recipe.scale.max_value = max_value;
        recipe.values = recipe.dtype = dtype;
        expect_same_bits_for_every_slicing(recipe, random);
      }
    }
  }
}

// With a parameter of many chunks, more than one thread's share of any loop.
TEST(Optimizer, GivesTheSameBitsWhateverItsThreads) {
  const TestUnit unit({{"long", {301, 1100}}, {"longer", {400'000}}});
  for (const OptimizerOptions& options : all_options()) {
    for (const int32_t dtype : {STRATA_DTYPE_F32, STRATA_DTYPE_F16}) {
      SCOPED_TRACE(options.name + ", dtype " + std::to_string(dtype));
      Recipe recipe;
      recipe.options = options;
      recipe.steps = 2;
      recipe.values = recipe.dtype = dtype;
      const Trained alone = train(unit, {0, unit.numel}, recipe);
      EXPECT_EQ(train(unit, {0, 64 * 1111, unit.numel}, recipe), alone);
      recipe.threads = 3;
      EXPECT_EQ(train(unit, {0, unit.numel}, recipe), alone);
    }
  }
}

// A strategy that forgets the end of each unit.
TEST(Optimizer, OfWholeParametersRefusesAStrategyThatDoesNotHaveThem) {
  const TestUnit unit;
  const auto groups = assign_groups(unit.spec, {}, 0).value();
  std::vector<float> memory(static_cast<size_t>(unit.numel));
  const std::vector<model::Partition> partitions = {slice(memory, 0, 128)};
  NoReducer reducer;
  for (const OptimizerOptions& options : all_options()) {
    const Status status = check_partitions(
        options, "lossy", {unit.spec, unit.layouts, partitions, groups, nullptr}, reducer);
    if (options.name != "lamb" && options.name != "adafactor") {
      EXPECT_TRUE(status.ok()) << status.message();
      continue;
    }
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_NE(status.message().find(options.name +
                                    ": takes sums over whole parameters, and the partitions of "
                                    "strategy 'lossy' have 128 of the 200 elements of 'w'"),
              std::string::npos)
        << status.message();
  }
}

TEST(Optimizer, ReadsSixteenBitGradientsAsTheirValues) {
  const TestUnit unit;
  for (const OptimizerOptions& options : all_options()) {
    for (const double max_value : {0.0, 0.05}) {
      for (const int32_t dtype : {STRATA_DTYPE_BF16, STRATA_DTYPE_F16}) {
        SCOPED_TRACE(options.name + ", dtype " + std::to_string(dtype));
        Recipe recipe;
        recipe.options = options;
        recipe.scale.max_value = max_value;
        recipe.values = dtype;
        const Trained long_ones = train(unit, {0, unit.numel}, recipe);
        recipe.dtype = dtype;
        EXPECT_EQ(train(unit, {0, unit.numel}, recipe), long_ones);
      }
    }
  }
}

TEST(Optimizer, ReadsNoOtherDtype) {
  const TestUnit unit;
  const auto groups = assign_groups(unit.spec, {}, 0).value();
  std::vector<float> memory(static_cast<size_t>(unit.numel));
  model::Partition partition = slice(memory, 0, unit.numel);
  partition.gradient_dtype = STRATA_DTYPE_F64;
  for (const OptimizerOptions& options : all_options()) {
    const std::vector<model::Partition> partitions = {partition};
    const auto made =
        make_optimizer(options, {unit.spec, unit.layouts, partitions, groups, allocate_state});
    EXPECT_EQ(made.status().code(), Code::kUnsupported) << options.name;
  }
}

TEST(Optimizer, CutsEachElementWhenItClipsByValue) {
  const TestUnit unit;
  Recipe recipe;
  recipe.options.name = "sgd";
  recipe.weight_decay = 0;
  recipe.steps = 1;
  recipe.scale = {0.125, 0.05};
  recipe.learning_rate = 1;
  const std::vector<float> after = train(unit, {0, unit.numel}, recipe).masters;
  recipe.scale.max_value = 0;
  const std::vector<float> not_cut = train(unit, {0, unit.numel}, recipe).masters;
  recipe.steps = 0;
  const std::vector<float> before = train(unit, {0, unit.numel}, recipe).masters;
  int64_t cut = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const float full = before[i] - not_cut[i];
    EXPECT_NEAR(before[i] - after[i], std::clamp(full, -0.05F, 0.05F), 1e-6) << i;
    if (std::fabs(full) > 0.05F) ++cut;
  }
  EXPECT_GT(cut, 100);
}

TEST(Optimizer, LeavesFrozenParametersAndPaddingAlone) {
  const TestUnit unit;
  for (const OptimizerOptions& options : all_options()) {
    Recipe recipe;
    recipe.options = options;
    const std::vector<float> after = train(unit, {0, unit.numel}, recipe).masters;
    recipe.steps = 0;
    const std::vector<float> before = train(unit, {0, unit.numel}, recipe).masters;
    EXPECT_NE(after, before) << options.name;
    for (int64_t i = 0; i < unit.spec.units[0].parameters[2].numel(); ++i) {
      const auto at = static_cast<size_t>(unit.layouts[0].offsets[2] + i);
      EXPECT_EQ(before[at], after[at]) << options.name;
    }
    for (const model::FlatLayout::Gap& gap : unit.layouts[0].gaps) {
      for (int64_t i = gap.first; i < gap.last; ++i) {
        EXPECT_EQ(after[static_cast<size_t>(i)], 0.0F) << options.name << " " << i;
      }
    }
  }
}

TEST(Optimizer, OfAnUnknownNameIsRefused) {
  const TestUnit unit;
  const auto groups = assign_groups(unit.spec, {}, 0).value();
  OptimizerOptions options;
  options.name = "adamx";
  const auto made = make_optimizer(options, {unit.spec, unit.layouts, {}, groups, allocate_state});
  EXPECT_EQ(made.status().code(), Code::kNotFound);
  EXPECT_NE(made.status().message().find("adafactor, lamb"), std::string::npos);
}

// ---- against other software ----

class Reference : public ::testing::Test {
 protected:
  Reference() {
    std::ifstream(std::string(STRATA_SOURCE_DIR) + "/tests/data/optim/reference.json") >> json_;
    model::UnitSpec unit{"u", {}};
    for (const char* name : {"w", "b", "c"}) {
      unit.parameters.push_back({name, json_["shapes"][name].get<std::vector<int64_t>>()});
    }
    spec_.units = {unit};
    spec_.order = {0};
    layouts_ = {model::make_flat_layout(unit, 64, 64)};
  }

  std::vector<float> flat(const Json& values) const {
    std::vector<float> out(static_cast<size_t>(layouts_[0].numel), 0.0F);
    for (size_t i = 0; i < spec_.units[0].parameters.size(); ++i) {
      const auto numbers = values[spec_.units[0].parameters[i].name].get<std::vector<float>>();
      std::copy(numbers.begin(), numbers.end(), out.begin() + layouts_[0].offsets[i]);
    }
    return out;
  }

  static OptimizerOptions options_of(const Json& c) {
    OptimizerOptions options;
    options.name = c["name"];
    const Json& given = c["options"];
    options.beta2 = given.value("beta2", options.beta2);
    options.epsilon = given.value("epsilon", options.epsilon);
    options.momentum = given.value("momentum", options.momentum);
    options.nesterov = given.value("nesterov", options.nesterov);
    options.scale_parameter = given.value("scale_parameter", options.scale_parameter);
    options.clip_threshold = given.value("clip_threshold", options.clip_threshold);
    options.decay_rate = given.value("decay_rate", options.decay_rate);
    return options;
  }

  Json json_;
  model::ModelSpec spec_;
  std::vector<model::FlatLayout> layouts_;
};

TEST_F(Reference, IsMetByEveryOptimizer) {
  std::map<std::string, int> seen;
  for (const Json& c : json_["cases"]) {
    SCOPED_TRACE(c["name"].dump() + " " + c["options"].dump());
    ++seen[c["name"]];
    std::vector<float> masters = flat(json_["start"]);
    std::vector<float> gradient(masters.size());
    model::Partition partition = slice(gradient, 0, layouts_[0].numel);
    partition.master = masters.data();
    const std::vector<model::Partition> partitions = {partition};
    const auto groups = assign_groups(spec_, {}, c["weight_decay"]).value();
    auto optimizer =
        make_optimizer(options_of(c), {spec_, layouts_, partitions, groups, allocate_state})
            .value();
    NoReducer reducer;
    for (const Json& step : json_["gradients"]) {
      const std::vector<float> values = flat(step);
      // As a sum over four tokens, in the partition's memory.
      for (size_t i = 0; i < values.size(); ++i) gradient[i] = values[i] * 4;
      ASSERT_TRUE(optimizer->step(c["learning_rate"], {0.25}, reducer).ok());
    }
    const std::vector<float> expected = flat(c["final"]);
    for (size_t i = 0; i < masters.size(); ++i) {
      EXPECT_NEAR(masters[i], expected[i], 1e-6) << "element " << i;
    }
  }
  EXPECT_EQ(seen.size(), optimizer_names().size());
}

// ---- groups ----

TEST(ParameterGroups, MatricesDecayAndOthersDoNot) {
  const TestUnit unit;
  const ParameterGroups groups = assign_groups(unit.spec, {}, 0.1).value();
  EXPECT_EQ(groups.at(0, 0).weight_decay, 0.1);
  EXPECT_EQ(groups.at(0, 1).weight_decay, 0.0);
  EXPECT_EQ(groups.at(0, 4).weight_decay, 0.1);
  EXPECT_EQ(groups.at(0, 5).weight_decay, 0.0);
  EXPECT_EQ(groups.groups.size(), 2U);
}

TEST(ParameterGroups, TheFirstMatchWins) {
  const TestUnit unit;
  const ParameterGroups groups =
      assign_groups(unit.spec, {{"[wb]", 0.5, {}}, {".", 2, 0.7}}, 0.1).value();
  EXPECT_EQ(groups.at(0, 0).lr_multiplier, 0.5);
  EXPECT_EQ(groups.at(0, 0).weight_decay, 0.1) << "a rule without decay leaves it";
  EXPECT_EQ(groups.at(0, 1).lr_multiplier, 0.5);
  EXPECT_EQ(groups.at(0, 1).weight_decay, 0.0);
  EXPECT_EQ(groups.at(0, 3).lr_multiplier, 2);
  EXPECT_EQ(groups.at(0, 5).weight_decay, 0.7) << "a rule may let a scalar decay";
}

TEST(ParameterGroups, MultiplyTheRate) {
  const TestUnit unit;
  Recipe recipe;
  recipe.options.name = "sgd";
  recipe.weight_decay = 0;
  recipe.steps = 1;
  const std::vector<float> plain = train(unit, {0, unit.numel}, recipe).masters;
  recipe.rules = {{"^w$", 0, {}}, {"^v$", 3, {}}};
  const std::vector<float> ruled = train(unit, {0, unit.numel}, recipe).masters;
  recipe.steps = 0;
  const std::vector<float> start = train(unit, {0, unit.numel}, recipe).masters;
  const auto w = static_cast<size_t>(unit.layouts[0].offsets[0]);
  const auto b = static_cast<size_t>(unit.layouts[0].offsets[1]);
  const auto v = static_cast<size_t>(unit.layouts[0].offsets[3]);
  EXPECT_EQ(ruled[w], start[w]);
  EXPECT_EQ(ruled[b], plain[b]);
  EXPECT_NEAR(ruled[v] - start[v], 3 * (plain[v] - start[v]), 1e-6);
}

TEST(ParameterGroups, ThatMatchNothingNameTheNearest) {
  model::ModelSpec spec;
  spec.units = {{"u",
                 {{"h.0.attn.c_attn.weight", {2, 2}},
                  {"h.0.ln_1.weight", {2}},
                  {"wte.weight", {2, 2}},
                  {"wpe.weight", {2, 2}}}}};
  const Status nothing = assign_groups(spec, {{"attn\\.c_atn", 1, {}}}, 0).status();
  EXPECT_EQ(nothing.code(), Code::kInvalidArgument);
  EXPECT_NE(nothing.message().find("the nearest are 'h.0.attn.c_attn.weight'"), std::string::npos)
      << nothing.message();
  EXPECT_TRUE(assign_groups(spec, {{"weight", 1, {}}, {"wte", 1, {}}}, 0).ok())
      << "a rule behind another one matches, too";
  const Status broken = assign_groups(spec, {{"ln_(", 1, {}}}, 0).status();
  EXPECT_NE(broken.message().find("'ln_(': is not a regular expression"), std::string::npos);
}

TEST(ParameterGroups, TableHasEveryParameterAndTheSums) {
  const TestUnit unit;
  const ParameterGroups groups = assign_groups(unit.spec, {{"^v$", 0.5, 0.0}}, 0.1).value();
  const std::string table = groups_table(unit.spec, groups);
  for (const char* part : {"w", "(10, 20)", "(frozen)", "^v$", "0.5", "0.1", "150"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

}  // namespace
}  // namespace strata::optim
