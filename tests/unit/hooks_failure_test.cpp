// What goes wrong: every mistake is a StatusError with names, and the graph can be used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/hooks_fixture.h"

namespace strata::hooks {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(UnitGraphErrors, NameTheExpectedUnitAndTheOneThatCame) {
  Chain chain({true, true, true});
  chain.graph->begin(Phase::kForward);
  const at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  const Status status = status_of([&] { chain.graph->enter(2, x, chain.body(2)); });
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_THAT(status.message(), HasSubstr("entry 1 of this pass is unit 'unit.2', but the declared "
                                          "order expects unit 'unit.1'"));
  EXPECT_THAT(status.message(), HasSubstr("HINT:"));
}

TEST(UnitGraphErrors, NameAUnitThatIsNotThere) {
  Chain chain({true});
  chain.graph->begin(Phase::kForward);
  const Status status = status_of([&] { chain.graph->enter(7, at::ones({3}), chain.body(0)); });
  EXPECT_THAT(status.message(), HasSubstr("unit 7 (of 1)"));
}

TEST(UnitGraphErrors, SayThatNoPassWasBegun) {
  Chain chain({true});
  const Status status = status_of([&] { chain.graph->enter(0, at::ones({3}), chain.body(0)); });
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_THAT(status.message(), HasSubstr("outside of a pass"));
}

TEST(UnitGraphErrors, RefuseAnEntryInsideAnEntry) {
  Chain chain({true, true});
  chain.graph->begin(Phase::kForward);
  const Status status = status_of([&] {
    chain.graph->enter(0, at::ones({3}), [&](const at::Tensor& x) {
      return chain.graph->enter(1, x, chain.body(1));
    });
  });
  EXPECT_THAT(status.message(), HasSubstr("inside the body of another entry"));
}

TEST(UnitGraphErrors, RefuseABackwardOfHalfAForward) {
  Chain chain({true, true});
  chain.graph->begin(Phase::kForward);
  const at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  const Status status = status_of([&] { chain.graph->backward(x.sum()); });
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_THAT(status.message(), HasSubstr("the forward is not complete (after 1 of 2 entries)"));
}

TEST(UnitGraphErrors, RefuseASecondBackward) {
  Chain chain({true});
  const at::Tensor loss = chain.forward(at::ones({3}));
  chain.graph->backward(loss);
  EXPECT_EQ(status_of([&] { chain.graph->backward(loss); }).code(), Code::kState);
}

TEST(UnitGraphErrors, RefuseALossOfManyElements) {
  Chain chain({true});
  chain.graph->begin(Phase::kForward);
  const at::Tensor x = chain.graph->enter(0, at::ones({3}), chain.body(0));
  const Status status = status_of([&] { chain.graph->backward(x); });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("3 elements"));
  chain.graph->backward(x.sum());
}

TEST(UnitGraphErrors, RefuseANewPassBeforeTheOldOneEnded) {
  Chain chain({true});
  chain.forward(at::ones({3}));
  const Status status = status_of([&] { chain.graph->begin(Phase::kForward); });
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_THAT(status.message(), HasSubstr("reset()"));
  chain.graph->reset();
  chain.train_once();
}

TEST(UnitGraphErrors, RefuseAForwardWithGradientsOff) {
  Chain chain({true});
  chain.graph->begin(Phase::kForward);
  const c10::AutoGradMode off(false);
  const Status status = status_of([&] { chain.graph->enter(0, at::ones({3}), chain.body(0)); });
  EXPECT_THAT(status.message(), HasSubstr("gradients off"));
}

TEST(UnitGraphErrors, RefuseABodyThatReturnsNothing) {
  Chain chain({true});
  chain.graph->begin(Phase::kForward);
  const Status status = status_of([&] {
    chain.graph->enter(0, at::ones({3}), [](const at::Tensor&) { return at::Tensor(); });
  });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

TEST(UnitGraphErrors, RefuseABackwardThatAutogradIsAskedForDirectly) {
  Chain chain({true, true});
  const at::Tensor loss = chain.forward(at::ones({3}));
  const Status status = status_of([&] { loss.backward(); });
  EXPECT_EQ(status.code(), Code::kState);
  EXPECT_THAT(status.message(), HasSubstr("call UnitGraph::backward(loss), not loss.backward()"));
}

TEST(UnitGraphErrors, RefuseABackwardOfAForwardThatWasGivenUp) {
  Chain chain({true, true});
  const at::Tensor loss = chain.forward(at::ones({3}));
  chain.graph->reset();
  EXPECT_THAT(status_of([&] { loss.backward(); }).message(), HasSubstr("given up"));
  chain.graph->set_recompute(UnitGraph::every(1));
  const at::Tensor second = chain.forward(at::ones({3}));
  chain.graph.reset();
  EXPECT_THAT(status_of([&] { second.backward(); }).message(), HasSubstr("given up"));
}

TEST(UnitGraphErrors, NameTheUnitWhoseWeightsWereWrittenSinceForward) {
  for (const bool is_recomputed : {false, true}) {
    Chain chain({true, true});
    chain.graph->set_recompute(UnitGraph::every(is_recomputed ? 1 : 0));
    const at::Tensor loss = chain.forward(at::ones({3}));
    chain.events.units[0]->advance_epoch();
    const Status status = status_of([&] { chain.graph->backward(loss); });
    EXPECT_EQ(status.code(), Code::kState);
    EXPECT_THAT(status.message(), HasSubstr("weights of unit 'unit.0' were written between its "
                                            "forward (epoch 0) and its backward (epoch 1)"));
    chain.graph->reset();
    chain.train_once();
  }
}

TEST(UnitGraphErrors, NameAUnitThatIsUsedInAnotherUnitsTurn) {
  Chain chain({true, true});
  chain.graph->begin(Phase::kForward);
  try {
    chain.graph->enter(0, at::ones({3}), chain.body(1));
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("unit 'unit.1' is not gathered"));
  }
  chain.graph->reset();
  chain.train_once();
}

TEST(UnitGraphErrors, NameAUnitThatNoEventGathersForBackward) {
  Chain chain({true, true});
  chain.events.on_event = [&](const std::string& event) {
    if (event == "gradient_target 0") chain.events.units[0]->unbind();
  };
  const at::Tensor loss = chain.forward(at::ones({3}).requires_grad_());
  try {
    chain.graph->backward(loss);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("unit 'unit.0' is not gathered"));
  }
}

TEST(UnitGraphErrors, RefuseSparseGradients) {
  RecordingEvents events({{"embed", {parameter("wte", {5, 2})}}});
  UnitGraph graph({0}, events.storages(), events);
  graph.begin(Phase::kForward);
  const at::Tensor x = graph.enter(0, at::ones({3}, at::kLong), [&](const at::Tensor& ids) {
    return at::embedding(events.units[0]->parameter(0), ids, -1, false, /*sparse=*/true);
  });
  const Status status = status_of([&] { graph.backward(x.sum()); });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("'wte' is sparse"));
}

TEST(UnitGraphErrors, RefuseOrdersThatLeaveAUnitOut) {
  RecordingEvents events(Chain::specs({true, true}));
  const Status status = status_of([&] { UnitGraph graph({0}, events.storages(), events); });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'unit.1'"));
}

TEST(UnitGraphErrors, RefuseAChangeOfRecomputationInsideAPass) {
  Chain chain({true});
  chain.graph->begin(Phase::kForward);
  EXPECT_EQ(status_of([&] { chain.graph->set_recompute(nullptr); }).code(), Code::kState);
}

// Every event of a pass, in all kinds of units, fails once.
TEST(UnitGraphErrors, PassOnWhatEventsThrowAndLeaveAUsableGraph) {
  for (const bool is_recomputed : {false, true}) {
    Bench bench({.blocks = 2});
    bench.plain_forward().backward();
    bench.graph->set_recompute(UnitGraph::every(is_recomputed ? 1 : 0));
    bench.train_once();
    const std::vector<std::string> events = std::exchange(bench.events.log, {});
    EXPECT_EQ(events.size(), is_recomputed ? 21u : 15u);
    for (const std::string& event : events) {
      bench.events.fails_at = event;
      const Status status = status_of([&] { bench.train_once(); });
      EXPECT_EQ(status.code(), Code::kPeerLost) << event;
      EXPECT_EQ(status.message(), "rank 1 died in " + event);
      EXPECT_EQ(bench.events.log.back(), event) << "no event may follow";
      EXPECT_EQ(status_of([&] { bench.forward(); }).code(), Code::kState);

      bench.graph->reset();
      for (auto& unit : bench.events.units) unit->unbind();
      bench.events.fails_at.clear();
      bench.train_once();
      EXPECT_THAT(bench.differing_gradients(), IsEmpty()) << "after a failing " << event;
      bench.events.log.clear();
    }
  }
}

TEST(UnitGraphErrors, LetNoGradientIntoMemoryOfAPassThatFailed) {
  Chain chain({true, true}, {0, 1, 0});
  chain.events.fails_at = "before_backward 1>-1";  // the tied unit 0 has its target then
  EXPECT_EQ(status_of([&] { chain.train_once(); }).code(), Code::kPeerLost);
  const at::Tensor before = chain.events.gradients[0].clone();
  chain.events.units[0]->bind(chain.events.content[0].data_ptr());
  const at::Tensor loss = chain.events.units[0]->parameter(0).sum();
  EXPECT_EQ(status_of([&] { loss.backward(); }).code(), Code::kState);
  EXPECT_TRUE(at::equal(chain.events.gradients[0], before));
}

TEST(UnitGraphErrors, PassOnWhatBodiesThrow) {
  Chain chain({true});
  for (const Phase phase : {Phase::kForward, Phase::kInference}) {
    chain.graph->begin(phase);
    EXPECT_THROW(chain.graph->enter(0, at::ones({3}),
                                    [](const at::Tensor&) -> at::Tensor {
                                      throw std::runtime_error("a body's own error");
                                    }),
                 std::runtime_error);
    EXPECT_TRUE(c10::GradMode::is_enabled());
    chain.graph->reset();
  }
  chain.train_once();
}

}  // namespace
}  // namespace strata::hooks
