// The gradient sink: gradients land in the strategy's memory, in its dtype, and nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "strata/hooks/gradient_sink.h"
#include "tests/unit/hooks_fixture.h"

namespace strata::hooks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One bound unit with its sink and a target full of garbage.
struct Unit {
  explicit Unit(std::vector<model::ParameterSpec> parameters, at::ScalarType dtype = at::kFloat)
      : storage({"block.3", parameters}, model::make_flat_layout({"block.3", parameters}, 64, 64),
                dtype),
        content(at::ones({storage.layout().numel}, dtype)),
        sink(storage) {
    storage.bind(content.data_ptr());
  }
  void open(at::Tensor target, bool is_accumulating = false) {
    flat = std::move(target);
    sink.open({flat.data_ptr(), flat.scalar_type(), is_accumulating});
  }
  at::Tensor garbage(at::ScalarType dtype = at::kFloat) const {
    return at::full({storage.layout().numel}, 99.0, dtype);
  }
  at::Tensor gradient(size_t index) const {
    const model::ParameterSpec& spec = storage.spec().parameters[index];
    return flat.narrow(0, storage.layout().offsets[index], spec.numel()).view(spec.shape);
  }
  const at::Tensor& operator[](size_t index) const { return storage.parameter(index); }

  model::UnitStorage storage;
  at::Tensor content;
  at::Tensor flat;
  GradientSink sink;
};

TEST(GradientSink, CopiesTheFirstGradientOfAWindow) {
  Unit unit({parameter("w", {2, 3})});
  unit.open(unit.garbage());
  (unit[0] * at::arange(6, at::kFloat).view({2, 3})).sum().backward();
  EXPECT_THAT(unit.sink.close(), IsEmpty());
  EXPECT_TRUE(at::equal(unit.gradient(0), at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_FALSE(unit[0].grad().defined());
}

TEST(GradientSink, AddsToAnAccumulatingTargetAndTouchesNothingElse) {
  Unit unit({parameter("w", {3}), parameter("unused", {3}), parameter("frozen", {3}, false)});
  unit.open(unit.garbage(), /*is_accumulating=*/true);
  (unit[0] * unit[2] * 2.0).sum().backward();
  EXPECT_THAT(unit.sink.close(), ElementsAre(1));
  at::Tensor wanted = unit.garbage();
  wanted.narrow(0, 0, 3).add_(2.0);
  EXPECT_TRUE(at::equal(unit.flat, wanted));
}

TEST(GradientSink, WritesZerosIntoGapsFrozenAndMissingParameters) {
  Unit unit({parameter("w", {3}), parameter("unused", {3}), parameter("frozen", {3}, false)});
  unit.open(unit.garbage());
  (unit[0] * unit[2] * 2.0).sum().backward();
  EXPECT_THAT(unit.sink.close(), ElementsAre(1));
  at::Tensor wanted = at::zeros_like(unit.flat);
  wanted.narrow(0, 0, 3).fill_(2.0);
  EXPECT_TRUE(at::equal(unit.flat, wanted));
}

TEST(GradientSink, WritesOverNotANumber) {
  Unit unit({parameter("w", {3}), parameter("unused", {3})});
  unit.open(unit.garbage().fill_(std::numeric_limits<float>::quiet_NaN()));
  (unit[0] * 2.0).sum().backward();
  unit.sink.close();
  EXPECT_EQ(unit.flat.sum().item<float>(), 6.0f);
}

TEST(GradientSink, HandsNotANumberOn) {
  Unit unit({parameter("w", {2})});
  unit.open(unit.garbage());
  (unit[0] * std::numeric_limits<double>::quiet_NaN()).sum().backward();
  EXPECT_THAT(unit.sink.close(), IsEmpty());
  EXPECT_TRUE(std::isnan(unit.gradient(0)[1].item<float>()));
}

TEST(GradientSink, CastsToTheTargetsType) {
  Unit unit({parameter("w", {4})}, at::kBFloat16);
  unit.open(unit.garbage(at::kFloat));
  (unit[0] * 3.0).sum().backward();
  unit.sink.close();
  EXPECT_EQ(unit.gradient(0).scalar_type(), at::kFloat);
  EXPECT_EQ(unit.gradient(0).sum().item<float>(), 12.0f);
}

TEST(GradientSink, AddsSixteenBitGradientsInThePrecisionOfTheTarget) {
  Unit unit({parameter("w", {4})}, at::kBFloat16);
  unit.open(unit.garbage(at::kFloat).fill_(256.0), /*is_accumulating=*/true);
  unit[0].sum().backward();  // 257 is no bf16 number
  unit.sink.close();
  EXPECT_EQ(unit.gradient(0)[0].item<float>(), 257.0f);
}

TEST(GradientSink, CastsDownToo) {
  Unit unit({parameter("w", {4})});
  unit.open(unit.garbage(at::kBFloat16));
  (unit[0] * 1.001).sum().backward();
  unit.sink.close();
  EXPECT_EQ(unit.gradient(0)[0].item<float>(), 1.0f);
}

TEST(GradientSink, WritesAndAddsEveryDtypeIntoEveryTarget) {
  const at::ScalarType dtypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
  for (const at::ScalarType own : dtypes) {
    for (const at::ScalarType target : dtypes) {
      SCOPED_TRACE(std::string(at::toString(own)) + " into " + at::toString(target));
      Unit unit({parameter("w", {4})}, own);
      unit.open(unit.garbage(target).fill_(std::nanf("")));
      (unit[0] * 3.0).sum().backward();
      unit.sink.close();
      EXPECT_TRUE(at::equal(unit.gradient(0), at::full({4}, 3.0, target)));
      EXPECT_EQ(unit.flat.sum().item<float>(), 12.0f) << "padding is zero";

      unit.open(unit.garbage(target).fill_(256.0), /*is_accumulating=*/true);
      (unit[0] * 3.0).sum().backward();
      unit.sink.close();
      // 259 is no bf16 number: the even neighbour is 260.
      const float sum = target == at::kBFloat16 ? 260.0f : 259.0f;
      EXPECT_TRUE(at::equal(unit.gradient(0), at::full({4}, sum, target)));
      EXPECT_EQ(unit.flat[4].item<float>(), 256.0f) << "padding is left alone";
    }
  }
}

TEST(GradientSink, OverflowsToInfinityWhereTheTargetEnds) {
  Unit unit({parameter("w", {2})});
  unit.open(unit.garbage(at::kHalf));
  (unit[0] * at::tensor({70000.0f, -70000.0f})).sum().backward();
  unit.sink.close();
  EXPECT_EQ(unit.gradient(0)[0].item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_EQ(unit.gradient(0)[1].item<float>(), -std::numeric_limits<float>::infinity());
}

TEST(GradientSink, GathersEntriesInTheirOwnDtypeUntilItCloses) {
  Unit unit({parameter("w", {4})}, at::kBFloat16);
  unit.flat = unit.garbage(at::kFloat);
  unit.sink.open({unit.flat.data_ptr(), at::kFloat, false}, /*gathers_entries=*/true);
  (unit[0] * 256.0).sum().backward();
  (unit[0] * 3.0).sum().backward();
  EXPECT_EQ(unit.gradient(0)[0].item<float>(), 99.0f) << "nothing is written yet";
  EXPECT_THAT(unit.sink.close(), IsEmpty());
  EXPECT_EQ(unit.gradient(0)[0].item<float>(), 260.0f) << "autograd adds in bf16";
}

TEST(GradientSink, AddsASecondGradientOfTheSameBackward) {
  Unit unit({parameter("w", {3})});
  unit.open(unit.garbage());
  (unit[0] * 2.0).sum().backward();
  (unit[0] * 5.0).sum().backward();
  EXPECT_THAT(unit.sink.close(), IsEmpty());
  EXPECT_EQ(unit.gradient(0)[0].item<float>(), 7.0f);
}

TEST(GradientSink, TakesGradientsThatAreNotContiguous) {
  Unit unit({parameter("w", {2, 3}), parameter("b", {4})});
  unit.open(unit.garbage());
  const at::Tensor factors = at::arange(6, at::kFloat).view({3, 2});
  ((unit[0].t() * factors).sum() + unit[1].sum()).backward();  // transposed, expanded
  unit.sink.close();
  EXPECT_TRUE(at::equal(unit.gradient(0), factors.t()));
  EXPECT_TRUE(at::equal(unit.gradient(1), at::ones({4})));
}

TEST(GradientSink, TakesScalarsAndParametersWithoutElements) {
  Unit unit({parameter("scale", {}), parameter("empty", {0, 3}), parameter("w", {5})});
  unit.open(unit.garbage());
  ((unit[0] * unit[2]).sum() + unit[1].sum()).backward();
  EXPECT_THAT(unit.sink.close(), IsEmpty());
  EXPECT_EQ(unit.gradient(0).item<float>(), 5.0f);
  EXPECT_EQ(unit.flat.sum().item<float>(), 10.0f);
}

TEST(GradientSink, RefusesSparseGradients) {
  Unit unit({parameter("wte", {5, 2})});
  unit.open(unit.garbage());
  const at::Tensor ids = at::ones({3}, at::kLong);
  const at::Tensor loss = at::embedding(unit[0], ids, -1, false, /*sparse=*/true).sum();
  const Status status = status_of([&] { loss.backward(); });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("gradient of 'wte' is sparse"));
}

TEST(GradientSink, RefusesCreateGraph) {
  Unit unit({parameter("w", {2})});
  unit.open(unit.garbage());
  const at::Tensor loss = unit[0].square().sum();
  const Status status = status_of([&] { loss.backward({}, std::nullopt, /*create_graph=*/true); });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("create_graph"));
}

TEST(GradientSink, RefusesGradientsOutsideOfItsTurn) {
  Unit unit({parameter("w", {2})});
  const Status status = status_of([&] { unit[0].sum().backward(); });
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_THAT(status.message(), HasSubstr("outside of the turn of unit 'block.3'"));
}

TEST(GradientSink, RefusesATargetWithoutMemory) {
  Unit unit({parameter("w", {2})});
  EXPECT_EQ(status_of([&] { unit.sink.open({}); }).code(), Code::kInternal);
}

TEST(GradientSink, TakesItsHooksAway) {
  model::UnitSpec spec{"u", {parameter("w", {2})}};
  model::UnitStorage storage(spec, model::make_flat_layout(spec, 64, 64));
  const at::Tensor content = at::ones({64});
  storage.bind(content.data_ptr());
  { const GradientSink sink(storage); }
  storage.parameter(0).sum().backward();
  EXPECT_TRUE(storage.parameter(0).grad().defined());
}

}  // namespace
}  // namespace strata::hooks
