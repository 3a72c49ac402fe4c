// `strata train` with every optimizer, learning rate and kind of clipping: the same bits under
// every strategy and after a resume.
#include <gmock/gmock.h>

#include "tests/process/command_fixture.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Recipe {
  std::string name;  // of the test
  Args flags;
};

void PrintTo(const Recipe& recipe, std::ostream* out) { *out << recipe.name; }

const Recipe kRecipes[] = {
    {"adamw",
     {"--weight-decay", "0.1", "--param-group", "wte:lr=0.5,weight_decay=0", "--lr-scheduler-type",
      "wsd", "--warmup-steps", "2", "--lr-decay-steps", "3"}},
    {"adam",
     {"--optim", "adam", "--weight-decay", "0.1", "--grad-norm-type", "1", "--max-grad-norm", "9",
      "--lr-scheduler-type", "polynomial", "--lr-power", "2"}},
    {"sgd",
     {"--optim", "sgd", "--learning-rate", "0.1", "--lr-scheduler-type", "inverse_sqrt",
      "--warmup-steps", "1"}},
    {"nesterov",
     {"--optim", "sgd", "--learning-rate", "0.05", "--momentum", "0.9", "--nesterov",
      "--weight-decay", "0.01", "--clip-grad-value", "0.01"}},
    {"adagrad",
     {"--optim", "adagrad", "--learning-rate", "1e-2", "--grad-norm-type", "3",
      "--lr-scheduler-type", "exponential", "--lr-gamma", "0.9"}},
    {"lion",
     {"--optim", "lion", "--learning-rate", "1e-4", "--weight-decay", "1", "--grad-norm-type",
      "inf", "--max-grad-norm", "0.05", "--lr-scheduler-type", "cosine"}},
    {"adafactor",
     {"--optim", "adafactor", "--adafactor-scale-parameter", "--adafactor-clip-threshold", "0.5",
      "--learning-rate", "0.1", "--weight-decay", "0.01"}},
    {"lamb",
     {"--optim", "lamb", "--learning-rate", "1e-2", "--weight-decay", "0.1", "--lr-scheduler-type",
      "WarmupLR", "--warmup-steps", "3", "--warmup-type", "log"}},
};

class EveryOptimizer : public CommandTest, public ::testing::WithParamInterface<Recipe> {
 protected:
  void train_under(const std::string& strategy, const std::string& folder, Args more) {
    more.insert(more.end(), {"--strategy", strategy, "--devices", "2"});
    more.insert(more.end(), GetParam().flags.begin(), GetParam().flags.end());
    succeed(train(folder, more));
  }

  std::vector<double> norms(const std::string& folder) const {
    std::vector<double> out;
    for (const auto& line : lines(folder + "/metrics.jsonl")) out.push_back(line["grad_norm"]);
    return out;
  }
};

TEST_P(EveryOptimizer, GivesTheSameBitsUnderEveryStrategyAndAfterAResume) {
  train_under("ddp", "ddp", {"--save-steps", "3"});
  const auto ddp = json("ddp/summary.json");
  EXPECT_LT(ddp["losses"][5], ddp["losses"][0]);
  train_under("fsdp", "fsdp", {});
  EXPECT_EQ(json("fsdp/summary.json")["losses"], ddp["losses"]);
  EXPECT_EQ(json("fsdp/summary.json")["weight_hash"], ddp["weight_hash"]);
  EXPECT_EQ(norms("fsdp"), norms("ddp"));

  train_under("zero1", "resumed", {"--resume-from-checkpoint", "ddp/checkpoint-3"});
  const auto resumed = json("resumed/summary.json");
  EXPECT_EQ(resumed["weight_hash"], ddp["weight_hash"]);
  ASSERT_EQ(resumed["losses"].size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(resumed["losses"][i], ddp["losses"][i + 3]);
}

INSTANTIATE_TEST_SUITE_P(Of, EveryOptimizer, ::testing::ValuesIn(kRecipes),
                         [](const auto& info) { return info.param.name; });

class OptimizerCommand : public CommandTest {};

TEST_F(OptimizerCommand, ShowsParameterGroupsAndDoesNothingElse) {
  for (const std::string devices : {"1", "2"}) {
    const Ended ended =
        succeed(train("out", {"--show-param-groups", "--devices", devices, "--weight-decay", "0.1",
                              "--param-group", "\\.wte\\.:lr=0.5,weight_decay=0.25"}));
    EXPECT_THAT(
        ended.out,
        AllOf(HasSubstr("transformer.h.0.attn.c_attn.weight   (32, 96)     1           0.1"),
              HasSubstr("\\.wte\\."), HasSubstr("0.25"), HasSubstr("0.1")));
    EXPECT_EQ(ended.err, "");
    EXPECT_FALSE(exists("out"));
  }
}

TEST_F(OptimizerCommand, CountsTheStepsThatItSkipsAndEndsWhenTheyAreTooMany) {
  const Ended ended =
      run(train("out", {"--learning-rate", "1e38", "--max-grad-norm", "0", "--on-nonfinite", "skip",
                        "--max-nonfinite-skips", "2", "--lr-scheduler-type", "constant"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("not finite in 2 steps in a row"), HasSubstr("HINT")));
  const auto metrics = lines("out/metrics.jsonl");
  ASSERT_GE(metrics.size(), 3U);
  EXPECT_EQ(metrics[0]["skipped_steps"], 0);
  EXPECT_EQ(metrics.back()["skipped_steps"], 2);
  EXPECT_TRUE(metrics.back()["loss"].is_null());
}

}  // namespace
}  // namespace strata::tests
