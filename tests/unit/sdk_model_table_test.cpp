// What strategies keep of a model: orders, roots, who has a backward, and what ranks agree on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/sdk/model_table.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk {
namespace {

using ::testing::HasSubstr;

struct TestUnit {
  const char* name;
  uint64_t numel;
  bool is_trainable = true;
};

// A model whose units have one parameter each.
class TestModel {
 public:
  TestModel(const std::vector<TestUnit>& units, std::vector<uint32_t> order)
      : order_(std::move(order)) {
    parameters_.reserve(units.size());
    for (const TestUnit& from : units) {
      sizes_.push_back(std::make_unique<int64_t>(static_cast<int64_t>(from.numel)));
      strata_parameter_t parameter{};
      parameter.struct_size = sizeof(parameter);
      parameter.name = "weight";
      parameter.dimensions = 1;
      parameter.shape = sizes_.back().get();
      parameter.numel = from.numel;
      parameter.trainable = from.is_trainable ? 1 : 0;
      parameters_.push_back(parameter);
      strata_unit_t unit{};
      unit.struct_size = sizeof(unit);
      unit.name = from.name;
      unit.parameters = &parameters_.back();
      unit.parameter_count = 1;
      unit.numel = from.numel;
      unit.trainable = parameter.trainable != 0 ? 1 : 0;
      unit.compute_dtype = unit.reduce_dtype = STRATA_DTYPE_F32;
      units_.push_back(unit);
    }
    model_.struct_size = sizeof(model_);
    model_.unit_count = static_cast<uint32_t>(units_.size());
    model_.units = units_.data();
    model_.order_count = static_cast<uint32_t>(order_.size());
    model_.order = order_.data();
  }
  const strata_model_t& get() const { return model_; }
  strata_unit_t& unit(uint32_t index) { return units_[index]; }

 private:
  std::vector<std::unique_ptr<int64_t>> sizes_;
  std::vector<strata_parameter_t> parameters_;
  std::vector<strata_unit_t> units_;
  std::vector<uint32_t> order_;
  strata_model_t model_{};
};

// The text of what the body throws, or "".
template <typename Body>
std::string thrown(strata_status_t code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

std::vector<uint32_t> roots_of(const ModelTable& table) {
  std::vector<uint32_t> roots;
  for (uint32_t u = 0; u < table.count(); ++u) {
    if (table.is_root(u)) roots.push_back(u);
  }
  return roots;
}

const std::vector<TestUnit> kFour = {{"a", 64}, {"b", 128}, {"c", 64}, {"d", 64}};

TEST(ModelTable, KnowsWhereUnitsBeginAndEnd) {
  const TestModel model(kFour, {0, 1, 2, 3, 1, 0});
  const ModelTable table(model.get(), 64);
  EXPECT_EQ(table.unit(1).first_entry, 1u);
  EXPECT_EQ(table.unit(1).last_entry, 4u);
  EXPECT_EQ(table.unit(1).parameter_bytes(), 512u);
  EXPECT_EQ(table.backward_order(), (std::vector<uint32_t>{3, 2, 1, 0}));
}

TEST(ModelTable, CallsUnitsAtTheEndsAndTiedOnesRoots) {
  EXPECT_EQ(roots_of(ModelTable(TestModel(kFour, {0, 1, 2, 3}).get(), 64)),
            (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(roots_of(ModelTable(TestModel(kFour, {0, 1, 2, 3, 0}).get(), 64)),
            (std::vector<uint32_t>{0}));
  EXPECT_EQ(roots_of(ModelTable(TestModel(kFour, {0, 1, 2, 1, 3}).get(), 64)),
            (std::vector<uint32_t>{0, 1, 3}));
}

TEST(ModelTable, GivesNoBackwardToFrozenUnitsInFrontOfAllThatIsTrained) {
  const auto backwards = [](const std::vector<bool>& trained, std::vector<uint32_t> order) {
    std::vector<TestUnit> units = kFour;
    for (size_t u = 0; u < units.size(); ++u) units[u].is_trainable = trained[u];
    const TestModel model(units, std::move(order));
    const ModelTable table(model.get(), 64);
    std::vector<bool> has;
    for (const UnitInfo& unit : table.units()) has.push_back(unit.has_backward);
    return has;
  };
  using Bools = std::vector<bool>;
  EXPECT_EQ(backwards({true, false, true, false}, {0, 1, 2, 3}), (Bools{true, true, true, true}));
  EXPECT_EQ(backwards({false, false, true, false}, {0, 1, 2, 3}),
            (Bools{false, false, true, true}));
  EXPECT_EQ(backwards({false, false, true, false}, {0, 1, 2, 3, 0}),
            (Bools{true, false, true, true}));
  EXPECT_EQ(backwards({false, false, false, false}, {0, 1, 2, 3}),
            (Bools{false, false, false, false}));
}

TEST(ModelTable, DoesNotTrainWhatHasNoElement) {
  const TestModel model({{"a", 64}, {"empty", 0}}, {0, 1});
  EXPECT_FALSE(ModelTable(model.get(), 64).unit(1).is_trainable);
}

TEST(ModelTable, PadsAModelThatHasSizesOnly) {
  const TestModel model({{"a", 100}, {"b", 1}}, {0, 1});
  const ModelTable table = ModelTable::padded(model.get(), 3);
  EXPECT_EQ(table.unit(0).numel, 192u);
  EXPECT_EQ(table.unit(1).numel, 192u);
}

TEST(ModelTable, RefusesAModelThatIsNotLaidOut) {
  const TestModel model({{"a", 64}, {"b", 100}}, {0, 1});
  EXPECT_EQ(thrown(STRATA_E_INVALID_ARGUMENT, [&] { ModelTable(model.get(), 64); }),
            "unit 'b' has 100 elements, not a multiple of 64. HINT: lay units out as layout() "
            "asks");
}

TEST(ModelTable, RefusesAnOrderThatLeavesAUnitOutOrNamesNone) {
  EXPECT_THAT(thrown(STRATA_E_INVALID_ARGUMENT,
                     [] {
                       ModelTable(TestModel(kFour, {0, 1, 3}).get(), 64);
                     }),
              HasSubstr("unit 'c' is not in the order of 3 entries"));
  EXPECT_THAT(thrown(STRATA_E_INVALID_ARGUMENT,
                     [] {
                       ModelTable(TestModel(kFour, {0, 1, 2, 3, 4}).get(), 64);
                     }),
              HasSubstr("entry 4 of the order is unit 4, the model has 4"));
}

TEST(ModelTable, RefusesUnitsThatItDoesNotHave) {
  const ModelTable table(TestModel(kFour, {0, 1, 2, 3}).get(), 64);
  EXPECT_THAT(thrown(STRATA_E_INVALID_ARGUMENT, [&] { table.unit(4); }), HasSubstr("unit 4 of 4"));
}

TEST(ModelTable, NamesTheUnitWithAnotherDtype) {
  TestModel model(kFour, {0, 1, 2, 3});
  EXPECT_EQ(thrown(STRATA_E_UNSUPPORTED, [&] { ModelTable(model.get(), 64).require_dtypes(); }),
            "");
  model.unit(0).compute_dtype = model.unit(1).accumulate_dtype = STRATA_DTYPE_F16;
  model.unit(1).reduce_dtype = STRATA_DTYPE_BF16;
  EXPECT_EQ(thrown(STRATA_E_UNSUPPORTED, [&] { ModelTable(model.get(), 64).require_dtypes(); }),
            "");
  model.unit(2).reduce_dtype = STRATA_DTYPE_F64;
  EXPECT_THAT(thrown(STRATA_E_UNSUPPORTED, [&] { ModelTable(model.get(), 64).require_dtypes(); }),
              HasSubstr("unit 'c' computes in dtype 1, reduces in dtype 4 and keeps gradients in "
                        "dtype 1, and f32 (1)"));
}

TEST(ModelTable, PutsAllThatRanksMustAgreeOnIntoItsText) {
  TestModel model(kFour, {0, 1, 2, 3});
  const std::string text = ModelTable(model.get(), 64).text();
  EXPECT_THAT(text, HasSubstr("unit 'b' numel 128 dtypes 1/1/1: weight[128]@0\n"));
  EXPECT_THAT(text, HasSubstr("entry 3\n"));
  EXPECT_NE(text, ModelTable(TestModel(kFour, {0, 2, 1, 3}).get(), 64).text());
  std::vector<TestUnit> frozen = kFour;
  frozen[1].is_trainable = false;
  EXPECT_NE(text, ModelTable(TestModel(frozen, {0, 1, 2, 3}).get(), 64).text());
}

}  // namespace
}  // namespace strata::sdk
