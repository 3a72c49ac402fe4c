// Unit events of a pass, and gradients against plain autograd, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/unit/hooks_fixture.h"

namespace strata::hooks {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Log = std::vector<std::string>;

TEST(UnitGraph, HasTheEventsOfATiedTransformerInOrder) {
  Bench bench({.blocks = 2});
  bench.train_once();
  EXPECT_EQ(bench.events.log, (Log{
                                  "before_forward 0>1",
                                  "before_forward 1>2",
                                  "after_forward 1>2",
                                  "before_forward 2>-1",
                                  "after_forward 2>-1",
                                  "after_forward 0>-1 !",
                                  "before_backward 0>2",
                                  "gradient_target 0",
                                  "before_backward 2>1",
                                  "gradient_target 2",
                                  "after_backward 2>1",
                                  "before_backward 1>-1",
                                  "gradient_target 1",
                                  "after_backward 1>-1",
                                  "after_backward 0>-1",
                              }));
}

TEST(UnitGraph, GivesTheGradientsOfPlainAutogradBitForBit) {
  Bench bench({.blocks = 3});
  const at::Tensor plain = bench.plain_forward();
  plain.backward();
  const at::Tensor loss = bench.forward();
  bench.graph->backward(loss);
  EXPECT_EQ(loss.item<float>(), plain.item<float>());
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
  EXPECT_THAT(bench.events.missing, Each(IsEmpty()));
}

TEST(UnitGraph, GivesTheSameGradientsWithDropout) {
  Bench bench({.blocks = 2, .dropout = 0.3});
  at::manual_seed(5);
  bench.plain_forward().backward();
  at::manual_seed(5);
  bench.train_once();
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
}

TEST(UnitGraph, AddsMicroBatchesUpAsPlainAutogradDoes) {
  Bench bench({.blocks = 2});
  bench.plain_forward().backward();
  bench.train_once();
  bench.ids = Transformer::ids();
  bench.plain_forward().backward();
  bench.events.is_accumulating = true;
  bench.train_once();
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
}

TEST(UnitGraph, NeverMakesAGradientTensorOfAParameter) {
  Bench bench({.blocks = 1});
  bench.train_once();
  for (const auto& unit : bench.events.units) {
    for (const at::Tensor& p : unit->parameters()) EXPECT_FALSE(p.grad().defined());
  }
}

TEST(UnitGraph, WritesPaddingAsZero) {
  Bench bench({.blocks = 1});
  bench.train_once();
  for (size_t u = 0; u < bench.events.units.size(); ++u) {
    for (const model::FlatLayout::Gap& gap : bench.events.units[u]->layout().gaps) {
      const at::Tensor padding =
          bench.events.gradients[u].narrow(0, gap.first, gap.last - gap.first);
      EXPECT_EQ(padding.count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST(UnitGraph, ClosesTheUnitThatNoInputGradientCloses) {
  Chain chain({true});
  chain.train_once();
  EXPECT_EQ(chain.events.log,
            (Log{"before_forward 0>-1", "after_forward 0>-1 !", "before_backward 0>-1",
                 "gradient_target 0", "after_backward 0>-1"}));
  EXPECT_FALSE(chain.events.units[0]->is_bound());
}

TEST(UnitGraph, CallsAllEventsFromTheCallingThread) {
  Chain chain({true, true, true});
  std::vector<std::thread::id> threads;
  chain.events.on_event = [&](const std::string&) {
    threads.push_back(std::this_thread::get_id());
  };
  chain.train_once();
  EXPECT_THAT(threads, Each(std::this_thread::get_id()));
}

TEST(UnitGraph, LeavesAutogradsThreadingAsItWas) {
  Chain chain({true});
  const bool before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  bool during = true;
  chain.events.on_event = [&](const std::string& event) {
    if (event == "before_backward 0>-1") {
      during = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    }
  };
  chain.train_once();
  EXPECT_FALSE(during);
  EXPECT_EQ(c10::AutogradState::get_tls_state().get_multithreading_enabled(), before);
}

Log backward_of(const Log& log) {
  Log out;
  for (const std::string& event : log) {
    if (event.find("backward") != std::string::npos || event.starts_with("gradient")) {
      out.push_back(event);
    }
  }
  return out;
}

TEST(UnitGraph, HasTheSameEventsWhateverGotAGradient) {
  const Log wanted = {"before_backward 2>1",  "gradient_target 2", "after_backward 2>1",
                      "before_backward 1>0",  "gradient_target 1", "after_backward 1>0",
                      "before_backward 0>-1", "gradient_target 0", "after_backward 0>-1"};
  Chain chain({true, true, true});
  chain.train_once();
  EXPECT_EQ(backward_of(chain.take_log()), wanted);

  // The gradient stops behind unit 1: its body detaches.
  chain.graph->begin(Phase::kForward);
  at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  x = chain.graph->enter(1, x, [&](const at::Tensor& in) { return chain.body(1)(in).detach(); });
  x = chain.graph->enter(2, x, chain.body(2));
  chain.graph->backward(x.sum());
  EXPECT_EQ(backward_of(chain.take_log()), wanted);
  EXPECT_THAT(chain.events.missing, ElementsAre(ElementsAre(0), ElementsAre(0), IsEmpty()));
  EXPECT_EQ(chain.events.gradients[0].count_nonzero().item<int64_t>(), 0);

  // A unit in the middle is skipped, as by a layer that is dropped at random.
  chain.graph->begin(Phase::kForward);
  x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  x = chain.graph->enter(1, x, [](const at::Tensor& in) { return in; });
  x = chain.graph->enter(2, x, chain.body(2));
  chain.graph->backward(x.sum());
  EXPECT_EQ(backward_of(chain.take_log()), wanted);
  EXPECT_THAT(chain.events.missing, ElementsAre(IsEmpty(), ElementsAre(0), IsEmpty()));

  // A loss without a gradient at all.
  chain.forward(at::ones({3}));
  chain.graph->backward(at::ones({}));
  EXPECT_EQ(backward_of(chain.take_log()), wanted);
  EXPECT_THAT(chain.events.missing, Each(ElementsAre(0)));
}

TEST(UnitGraph, LeavesAccumulatedGradientsOfMissingParametersAlone) {
  Chain chain({true, true});
  chain.train_once();
  const at::Tensor first = chain.events.gradients[0].clone();
  chain.events.is_accumulating = true;
  chain.forward(at::ones({3}));
  chain.graph->backward(at::ones({}));
  EXPECT_TRUE(at::equal(chain.events.gradients[0], first));
}

TEST(UnitGraph, LeavesAFrozenPrefixOutOfBackward) {
  Chain chain({false, false, true});
  chain.train_once();
  EXPECT_EQ(
      backward_of(chain.take_log()),
      (Log{"before_backward 2>-1", "gradient_target 2", "after_backward 2>-1"}));
  EXPECT_NE(chain.events.gradients[2][0].item<float>(), 0.0f);
  EXPECT_EQ(chain.events.gradients[1][0].item<float>(), RecordingEvents::kGarbage);
}

TEST(UnitGraph, CarriesGradientsThroughAFrozenUnitInTheMiddle) {
  Chain frozen({true, false, true});
  frozen.train_once();
  Chain trained({true, true, true});
  trained.train_once();
  EXPECT_TRUE(at::equal(frozen.events.gradients[0], trained.events.gradients[0]));
  EXPECT_TRUE(at::equal(frozen.events.gradients[2], trained.events.gradients[2]));
}

TEST(UnitGraph, RunsAModelThatIsFrozenThroughout) {
  Chain chain({false, false});
  chain.train_once();
  EXPECT_EQ(backward_of(chain.take_log()), Log{});
}

TEST(UnitGraph, RefusesAnInputOfAFrozenPrefixThatWantsAGradient) {
  Chain chain({false, true});
  try {
    chain.forward(at::ones({3}).requires_grad_());
    FAIL() << "backward would need weights that are not gathered";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.status().code(), Code::kUnsupported);
    EXPECT_THAT(error.status().message(),
                AllOf(HasSubstr("entry 0"), HasSubstr("HINT: detach its input")));
  }
}

TEST(UnitGraph, InfersWithoutGradients) {
  Chain chain({true, true}, {0, 1, 0});
  const at::Tensor out = chain.forward(at::ones({3}).requires_grad_(), Phase::kInference);
  EXPECT_FALSE(out.requires_grad());
  EXPECT_EQ(chain.take_log(),
            (Log{"inference before_forward 0>1", "inference before_forward 1>-1",
                 "inference after_forward 1>-1", "inference after_forward 0>-1"}));
  chain.train_once();
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

TEST(UnitGraph, GivesTheGradientOfAnInputThatWantsOne) {
  Chain chain({true, true});
  const at::Tensor x = at::ones({3}).requires_grad_();
  chain.graph->backward(chain.forward(x));
  EXPECT_TRUE(x.grad().defined());
}

TEST(UnitGraph, CollectsGradientsOfALossOnSeveralOutputs) {
  const auto run = [](bool is_plain) {
    Chain chain({true, true});
    const at::Tensor w0 = at::full({3}, 0.5f).requires_grad_();
    const at::Tensor w1 = at::full({3}, 0.5f).requires_grad_();
    if (is_plain) {
      const at::Tensor x = at::tanh(at::ones({3}) * w0);
      (at::tanh(x * w1).sum() + x.square().sum()).backward();
      return std::vector<at::Tensor>{w0.grad(), w1.grad()};
    }
    chain.graph->begin(Phase::kForward);
    const at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
    const at::Tensor y = chain.graph->enter(1, x, chain.body(1));
    chain.graph->backward(y.sum() + x.square().sum());
    return std::vector<at::Tensor>{chain.events.gradient_of(0, 0).clone(),
                                   chain.events.gradient_of(1, 0).clone()};
  };
  const auto plain = run(true);
  const auto units = run(false);
  EXPECT_TRUE(at::equal(plain[0], units[0]));
  EXPECT_TRUE(at::equal(plain[1], units[1]));
}

// As the blocks of a decoder use the output of the encoder.
TEST(UnitGraph, CollectsGradientsOfAnOutputThatLaterBodiesCaptured) {
  Chain chain({true, true, true, true}, {0, 1, 0, 2, 3});
  chain.graph->begin(Phase::kForward);
  at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  const at::Tensor encoded = chain.graph->enter(1, x, chain.body(1));
  x = chain.graph->enter(0, at::full({3}, 2.0f), chain.body(0));
  for (const int unit : {2, 3}) {
    x = chain.graph->enter(unit, x, [&chain, encoded, unit](const at::Tensor& in) {
      return chain.body(unit)(in * encoded);
    });
  }
  chain.graph->backward(x.sum());

  std::vector<at::Tensor> w;
  for (int i = 0; i < 4; ++i) w.push_back(at::full({3}, 0.5f).requires_grad_());
  const at::Tensor e = at::tanh(at::tanh(at::ones({3}) * w[0]) * w[1]);
  const at::Tensor y = at::tanh(at::tanh(at::full({3}, 2.0f) * w[0]) * e * w[2]);
  at::tanh(y * e * w[3]).sum().backward();
  for (int u = 0; u < 4; ++u) {
    EXPECT_TRUE(at::equal(chain.events.gradient_of(u, 0), w[static_cast<size_t>(u)].grad())) << u;
  }
}

TEST(UnitGraph, FreesActivationsWhenBackwardReturns) {
  Chain chain({true, true});
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> activations;
  const auto watched = [&](int unit) -> UnitRunner::Body {
    return [&activations, body = chain.body(unit)](const at::Tensor& x) {
      const at::Tensor inner = x.exp();
      activations.emplace_back(inner.getIntrusivePtr());
      return body(inner);
    };
  };
  {
    chain.graph->begin(Phase::kForward);
    at::Tensor x = chain.graph->enter(0, at::ones({3}).requires_grad_(), watched(0));
    x = chain.graph->enter(1, x, watched(1));
    EXPECT_FALSE(activations[0].expired());
    const at::Tensor loss = x.sum();
    x.reset();
    chain.graph->backward(loss);
    EXPECT_TRUE(activations[0].expired());
    EXPECT_TRUE(activations[1].expired());
  }
}

TEST(UnitGraph, FreesActivationsOfAForwardThatIsGivenUp) {
  Chain chain({true});
  c10::weak_intrusive_ptr<c10::TensorImpl> activation(c10::intrusive_ptr<c10::TensorImpl>{});
  {
    chain.graph->begin(Phase::kForward);
    const at::Tensor y = chain.graph->enter(0, at::ones({3}), [&](const at::Tensor& x) {
      const at::Tensor inner = chain.body(0)(x);
      activation = c10::weak_intrusive_ptr<c10::TensorImpl>(inner.getIntrusivePtr());
      return inner.square();
    });
    EXPECT_FALSE(activation.expired());
  }
  chain.graph->reset();
  EXPECT_TRUE(activation.expired());
}

TEST(UnitGraph, LeavesNoHooksBehind) {
  Chain chain({true});
  chain.train_once();
  chain.graph.reset();
  chain.events.units[0]->bind(chain.events.content[0].data_ptr());
  chain.events.units[0]->parameter(0).sum().backward();
  EXPECT_TRUE(chain.events.units[0]->parameter(0).grad().defined());
}

TEST(UnitGraph, WritesGradientsOfSixteenBitUnitsInFullPrecision) {
  Chain chain({true, true}, {0, 1}, at::kBFloat16);
  chain.events.set_gradient_dtype(at::kFloat);
  chain.graph->backward(chain.forward(at::ones({3}, at::kBFloat16)));
  const auto weight = [] { return at::full({3}, 0.5f, at::kBFloat16).requires_grad_(); };
  const at::Tensor w0 = weight(), w1 = weight();
  at::tanh(at::tanh(at::ones({3}, at::kBFloat16) * w0) * w1).sum().backward();
  EXPECT_TRUE(at::equal(chain.events.gradient_of(0, 0), w0.grad().to(at::kFloat)));
  EXPECT_TRUE(at::equal(chain.events.gradient_of(1, 0), w1.grad().to(at::kFloat)));
}

TEST(UnitGraph, TrainsOnSeveralThreadsAtOnce) {
  Chain alone({true, true, true});
  alone.train_once();
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < 3; ++i) {
    chains.push_back(std::make_unique<Chain>(std::vector<bool>{true, true, true}));
    chains.back()->graph->set_recompute(UnitGraph::every(i));
  }
  std::vector<std::thread> threads;
  for (auto& chain : chains) {
    threads.emplace_back([&chain] {
      for (int i = 0; i < 20; ++i) chain->train_once();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& chain : chains) {
    for (size_t u = 0; u < 3; ++u) {
      EXPECT_TRUE(at::equal(chain->events.gradient_of(static_cast<int>(u), 0),
                            alone.events.gradient_of(static_cast<int>(u), 0)));
    }
  }
}

TEST(UnitGraph, TrainsManyPasses) {
  Bench bench({.blocks = 1});
  bench.plain_forward().backward();
  for (int i = 0; i < 5; ++i) bench.train_once();
  EXPECT_THAT(bench.differing_gradients(), IsEmpty());
  EXPECT_EQ(bench.events.log.size(), 5u * 10u);
}

}  // namespace
}  // namespace strata::hooks
