// Flat layouts: offsets, padding, gaps.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "strata/model/unit_spec.h"

namespace strata::model {
namespace {

UnitSpec unit_of(std::vector<std::vector<int64_t>> shapes) {
  UnitSpec unit;
  unit.name = "block.0";
  for (auto& shape : shapes) unit.parameters.push_back({"p", std::move(shape), true});
  return unit;
}

std::vector<std::pair<int64_t, int64_t>> gaps_of(const FlatLayout& layout) {
  std::vector<std::pair<int64_t, int64_t>> gaps;
  for (const FlatLayout::Gap& gap : layout.gaps) gaps.emplace_back(gap.first, gap.last);
  return gaps;
}

using Gaps = std::vector<std::pair<int64_t, int64_t>>;

TEST(FlatLayout, AlignsParametersAndPadsTheEnd) {
  const FlatLayout layout = make_flat_layout(unit_of({{10, 10}, {3}, {64}}), 64, 128);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 128, 192}));
  EXPECT_EQ(layout.numel, 256);
  EXPECT_EQ(gaps_of(layout), (Gaps{{100, 128}, {131, 192}}));
}

TEST(FlatLayout, NamesThePaddingBehindTheLastParameterAsAGap) {
  const FlatLayout layout = make_flat_layout(unit_of({{65}}), 64, 192);
  EXPECT_EQ(layout.numel, 192);
  EXPECT_EQ(gaps_of(layout), (Gaps{{65, 192}}));
}

TEST(FlatLayout, HasNoGapsWhereSizesFit) {
  const FlatLayout layout = make_flat_layout(unit_of({{64}, {2, 64}}), 64, 64);
  EXPECT_EQ(layout.numel, 192);
  EXPECT_TRUE(layout.gaps.empty());
}

TEST(FlatLayout, GivesParametersWithoutElementsAPlaceButNoRoom) {
  const FlatLayout layout = make_flat_layout(unit_of({{5}, {0, 7}, {}, {1}}), 64, 64);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 64, 64, 128}));
  EXPECT_EQ(layout.numel, 192);
  EXPECT_EQ(gaps_of(layout), (Gaps{{5, 64}, {65, 128}, {129, 192}}));
}

TEST(FlatLayout, OfNothingIsEmpty) {
  EXPECT_EQ(make_flat_layout(unit_of({}), 64, 128).numel, 0);
  EXPECT_EQ(make_flat_layout(unit_of({{0}}), 64, 128).numel, 0);
}

TEST(UnitSpec, IsTrainableIfOneParameterIs) {
  UnitSpec unit = unit_of({{2}, {3}});
  EXPECT_TRUE(unit.is_trainable());
  unit.parameters[0].is_trainable = false;
  EXPECT_TRUE(unit.is_trainable());
  unit.parameters[1].is_trainable = false;
  EXPECT_FALSE(unit.is_trainable());
  EXPECT_FALSE(unit_of({}).is_trainable());
}

TEST(ParameterSpec, CountsElements) {
  EXPECT_EQ((ParameterSpec{"scalar", {}, true}.numel()), 1);
  EXPECT_EQ((ParameterSpec{"matrix", {3, 5}, true}.numel()), 15);
  EXPECT_EQ((ParameterSpec{"nothing", {3, 0}, true}.numel()), 0);
}

}  // namespace
}  // namespace strata::model
