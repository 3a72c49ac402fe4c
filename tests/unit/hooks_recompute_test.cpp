// Recomputation: the same gradients from less memory, the same random numbers, honest phases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/hooks_fixture.h"

namespace strata::hooks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Log = std::vector<std::string>;

const auto kAll = UnitGraph::every(1);

TEST(Recompute, GivesTheGradientsOfPlainAutogradBitForBit) {
  Bench bench({.blocks = 3});
  bench.plain_forward().backward();
  bench.graph->set_recompute(kAll);
  bench.train_once();
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
}

TEST(Recompute, DropsTheSameElementsAsForwardDid) {
  Bench bench({.blocks = 2, .dropout = 0.4});
  at::manual_seed(21);
  bench.plain_forward().backward();
  bench.graph->set_recompute(kAll);
  at::manual_seed(21);
  bench.train_once();
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
}

TEST(Recompute, LeavesTheGeneratorWhereForwardLeftIt) {
  Bench bench({.blocks = 2, .dropout = 0.4});
  at::manual_seed(21);
  bench.train_once();
  const at::Tensor without = at::rand({4});
  bench.graph->set_recompute(kAll);
  at::manual_seed(21);
  bench.train_once();
  EXPECT_TRUE(at::equal(at::rand({4}), without));
}

TEST(Recompute, HasItsEventsBeforeTheBackwardOfTheUnit) {
  Chain chain({true, true, true});
  chain.graph->set_recompute([](int unit) { return unit != 1; });
  chain.train_once();
  EXPECT_EQ(
      chain.take_log(),
      (Log{"before_forward 0>1", "after_forward 0>1", "before_forward 1>2", "after_forward 1>2",
           "before_forward 2>-1", "after_forward 2>-1 !", "recompute before_forward 2>1",
           "recompute after_forward 2>1", "before_backward 2>1", "gradient_target 2",
           "after_backward 2>1", "before_backward 1>0", "gradient_target 1", "after_backward 1>0",
           "recompute before_forward 0>-1", "recompute after_forward 0>-1", "before_backward 0>-1",
           "gradient_target 0", "after_backward 0>-1"}));
}

TEST(Recompute, RunsTheBodyBetweenItsTwoEvents) {
  Chain chain({true});
  chain.graph->set_recompute(kAll);
  chain.graph->begin(Phase::kForward);
  const at::Tensor y = chain.graph->enter(0, at::ones({3}), [&](const at::Tensor& x) {
    chain.events.log.push_back(c10::GradMode::is_enabled() ? "body" : "body without gradients");
    return chain.body(0)(x);
  });
  chain.graph->backward(y.sum());
  EXPECT_EQ(chain.take_log(),
            (Log{"before_forward 0>-1", "body without gradients", "after_forward 0>-1 !",
                 "recompute before_forward 0>-1", "body", "recompute after_forward 0>-1",
                 "before_backward 0>-1", "gradient_target 0", "after_backward 0>-1"}));
}

TEST(Recompute, HasTheSameEventsWhereNoGradientArrives) {
  Chain chain({true, true});
  chain.graph->set_recompute(kAll);
  chain.train_once();
  const Log wanted = chain.take_log();
  chain.forward(at::ones({3}));
  chain.graph->backward(at::ones({}));
  EXPECT_EQ(chain.take_log(), wanted);
  EXPECT_THAT(chain.events.missing, ElementsAre(ElementsAre(0), ElementsAre(0)));
}

TEST(Recompute, KeepsParameterGradientsOfAnInputOfIntegers) {
  Bench bench({.blocks = 1});
  bench.plain_forward().backward();
  bench.graph->set_recompute([](int unit) { return unit == 0; });
  bench.train_once();
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
}

TEST(Recompute, KeepsParameterGradientsOfAnInputWithoutGradient) {
  Chain recomputed({true, true});
  recomputed.graph->set_recompute(kAll);
  recomputed.train_once();
  Chain kept({true, true});
  kept.train_once();
  EXPECT_TRUE(at::equal(recomputed.events.gradients[0], kept.events.gradients[0]));
}

TEST(Recompute, AddsTheEntriesOfATiedUnitUp) {
  Chain recomputed({true, true}, {0, 1, 0, 1, 0});
  recomputed.graph->set_recompute(kAll);
  recomputed.train_once();
  Chain kept({true, true}, {0, 1, 0, 1, 0});
  kept.train_once();
  EXPECT_TRUE(at::equal(recomputed.events.gradients[0], kept.events.gradients[0]));
  EXPECT_TRUE(at::equal(recomputed.events.gradients[1], kept.events.gradients[1]));
  EXPECT_THAT(recomputed.events.missing, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(Recompute, CarriesTheGradientThroughAFrozenUnit) {
  Chain recomputed({true, false, true});
  recomputed.graph->set_recompute(kAll);
  recomputed.train_once();
  Chain kept({true, false, true});
  kept.train_once();
  EXPECT_TRUE(at::equal(recomputed.events.gradients[0], kept.events.gradients[0]));
}

TEST(Recompute, LeavesAFrozenPrefixAlone) {
  Chain chain({false, true});
  chain.graph->set_recompute(kAll);
  chain.train_once();
  EXPECT_NE(chain.events.gradients[1][0].item<float>(), 0.0f);
  EXPECT_EQ(chain.events.log.back(), "after_backward 1>-1");
}

TEST(Recompute, GivesTheGradientOfAnInputThatWantsOne) {
  const auto gradient = [](bool is_recomputed) {
    Chain chain({true, true});
    if (is_recomputed) chain.graph->set_recompute(kAll);
    const at::Tensor x = at::ones({3}).requires_grad_();
    chain.graph->backward(chain.forward(x));
    return x.grad();
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

TEST(Recompute, AddsMicroBatchesUp) {
  Bench bench({.blocks = 2});
  bench.graph->set_recompute(kAll);
  bench.plain_forward().backward();
  bench.train_once();
  bench.ids = Transformer::ids();
  bench.plain_forward().backward();
  bench.events.is_accumulating = true;
  bench.train_once();
  // The tied weight too: (a1 + b1) + (a2 + b2).
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
}

// Three steps of a tied chain, into an fp32 target; the gradients of both units.
std::vector<at::Tensor> tied_gradients(at::ScalarType dtype, bool is_recomputed) {
  Chain chain({true, true}, {0, 1, 0, 1, 0}, dtype);
  if (is_recomputed) chain.graph->set_recompute(kAll);
  const at::Tensor inputs = at::linspace(-2, 3, 9).view({3, 3}).to(dtype);
  for (int micro = 0; micro < 3; ++micro) {
    chain.events.is_accumulating = micro > 0;
    chain.graph->backward(chain.forward(inputs[micro]));
  }
  return chain.events.gradients;
}

TEST(Recompute, GivesATiedUnitTheSameBitsInEveryDtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto kept = tied_gradients(dtype, false);
    const auto recomputed = tied_gradients(dtype, true);
    EXPECT_TRUE(at::equal(recomputed[0], kept[0])) << at::toString(dtype);
    EXPECT_TRUE(at::equal(recomputed[1], kept[1])) << at::toString(dtype);
  }
}

class RecomputeMemory : public ::testing::TestWithParam<bool> {};

TEST_P(RecomputeMemory, KeepsTheInputOnlyIfRecomputedAndNothingBehindBackward) {
  const bool is_recomputed = GetParam();
  Chain chain({true, true});
  chain.graph->set_recompute(UnitGraph::every(is_recomputed ? 1 : 0));
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> inner;
  const auto watched = [&](int unit) -> UnitRunner::Body {
    return [&inner, body = chain.body(unit)](const at::Tensor& x) {
      const at::Tensor y = body(x);
      inner.emplace_back(y.getIntrusivePtr());
      return y.square();
    };
  };
  chain.graph->begin(Phase::kForward);
  at::Tensor x = chain.graph->enter(0, at::ones({3}), watched(0));
  const c10::weak_intrusive_ptr<c10::TensorImpl> input(x.getIntrusivePtr());
  x = chain.graph->enter(1, x, watched(1));
  EXPECT_EQ(inner[0].expired(), is_recomputed);
  EXPECT_EQ(inner[1].expired(), is_recomputed);
  EXPECT_FALSE(input.expired());
  const at::Tensor loss = x.sum();
  x.reset();
  chain.graph->backward(loss);
  EXPECT_EQ(inner.size(), is_recomputed ? 4u : 2u);
  for (const auto& tensor : inner) EXPECT_TRUE(tensor.expired());
  EXPECT_TRUE(input.expired());
}

INSTANTIATE_TEST_SUITE_P(Both, RecomputeMemory, ::testing::Bool());

TEST(Recompute, FreesWhatTheBodyCapturedWhenBackwardReturns) {
  Chain chain({true});
  chain.graph->set_recompute(kAll);
  auto captured = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = captured;
  chain.graph->begin(Phase::kForward);
  const at::Tensor y = chain.graph->enter(
      0, at::ones({3}), [&, captured](const at::Tensor& x) { return chain.body(0)(x); });
  captured.reset();
  EXPECT_FALSE(watched.expired());
  chain.graph->backward(y.sum());
  EXPECT_TRUE(watched.expired());
}

TEST(Recompute, InfersAsWithout) {
  Chain chain({true, true});
  chain.graph->set_recompute(kAll);
  chain.forward(at::ones({3}), Phase::kInference);
  EXPECT_EQ(chain.events.log.size(), 4u);
}

TEST(Recompute, RefusesABodyThatUsesAnotherEntrysOutput) {
  Chain chain({true, true, true});
  chain.graph->set_recompute([](int unit) { return unit == 2; });
  chain.graph->begin(Phase::kForward);
  const at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  at::Tensor y = chain.graph->enter(1, x, chain.body(1));
  y = chain.graph->enter(2, y, [&chain, x](const at::Tensor& in) { return chain.body(2)(in + x); });
  const Status status = status_of([&] { chain.graph->backward(y.sum()); });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("entry 2 (unit 'unit.2') is recomputed, but uses the "
                                          "output of entry 0 (unit 'unit.0')"));
}

TEST(Recompute, PutsTheGeneratorBackWhenTheBodyFails) {
  Chain chain({true});
  chain.graph->set_recompute(kAll);
  chain.graph->begin(Phase::kForward);
  int runs = 0;
  const at::Tensor y = chain.graph->enter(0, at::ones({3}), [&](const at::Tensor& x) {
    const at::Tensor out = at::dropout(chain.body(0)(x), 0.5, true);
    if (++runs == 2) throw StatusError(out_of_memory("no room to compute again"));
    return out;
  });
  at::manual_seed(3);
  const at::Tensor wanted = at::rand({4});
  at::manual_seed(3);
  const Status status = status_of([&] { chain.graph->backward(y.sum()); });
  EXPECT_EQ(status.message(), "no room to compute again");
  EXPECT_TRUE(at::equal(at::rand({4}), wanted));
}

TEST(Recompute, IsChosenForEveryNthUnit) {
  EXPECT_TRUE(UnitGraph::every(2)(0));
  EXPECT_FALSE(UnitGraph::every(2)(1));
  EXPECT_TRUE(UnitGraph::every(2)(2));
  EXPECT_TRUE(UnitGraph::every(1)(7));
  EXPECT_FALSE(UnitGraph::every(0)(0));
}

TEST(Recompute, CanBeSwitchedOff) {
  Chain chain({true});
  chain.graph->set_recompute(kAll);
  chain.graph->set_recompute(nullptr);
  chain.train_once();
  EXPECT_EQ(chain.events.log.size(), 5u);
}

}  // namespace
}  // namespace strata::hooks
