// Flags of optimizers, learning rates and clipping: what goes together, and what does not.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "strata/config/config.h"
#include "strata/config/optimizer_flags.h"
#include "tests/unit/temporary_folder.h"

namespace strata::config {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Args = std::vector<std::string>;

Result<Command> parse(const Args& more) {
  Args args = {"train", "--model", "gpt2", "--data", "a.txt"};
  args.insert(args.end(), more.begin(), more.end());
  return parse_command(args);
}

OptimizerConfig taken(const Args& more) {
  const Result<Command> command = parse(more);
  EXPECT_TRUE(command.ok()) << command.status().message();
  return command.ok() ? std::get<TrainConfig>(*command).optimizer : OptimizerConfig{};
}

std::string refused(const Args& more) {
  const Result<Command> command = parse(more);
  EXPECT_FALSE(command.ok()) << "was taken";
  return command.ok() ? "" : command.status().message();
}

TEST(OptimizerFlags, AreReadByTheNamesOfTheField) {
  const OptimizerConfig c = taken({"--optim",
                                   "sgd",
                                   "--momentum",
                                   "0.9",
                                   "--nesterov",
                                   "--lr-scheduler-type",
                                   "wsd",
                                   "--warmup-ratio",
                                   "0.1",
                                   "--lr-decay-steps",
                                   "7",
                                   "--lr-decay-type",
                                   "1-sqrt",
                                   "--min-lr-ratio",
                                   "0.05",
                                   "--grad-norm-type",
                                   "inf",
                                   "--max-grad-norm",
                                   "2",
                                   "--on-nonfinite",
                                   "skip",
                                   "--max-nonfinite-skips",
                                   "3",
                                   "--param-group",
                                   "wte:lr=0.5",
                                   "--param-group",
                                   "bias$:weight_decay=0.1,lr=2"});
  EXPECT_EQ(c.optim, "sgd");
  EXPECT_EQ(c.momentum, 0.9);
  EXPECT_TRUE(c.nesterov);
  EXPECT_EQ(c.lr_scheduler_type, "wsd");
  EXPECT_EQ(c.warmup_ratio, 0.1);
  EXPECT_EQ(c.lr_decay_steps, 7);
  EXPECT_EQ(c.lr_decay_type, "1-sqrt");
  EXPECT_EQ(c.min_lr_ratio, 0.05);
  EXPECT_EQ(c.grad_norm_type, "inf");
  EXPECT_EQ(c.on_nonfinite, "skip");
  EXPECT_EQ(c.max_nonfinite_skips, 3);
  EXPECT_THAT(c.param_group, ElementsAre("wte:lr=0.5", "bias$:weight_decay=0.1,lr=2"));
}

TEST(OptimizerFlags, NamesOfTheTrainerStandForOurs) {
  EXPECT_EQ(taken({"--optim", "adamw_torch"}).optim, "adamw");
  EXPECT_EQ(taken({"--optim", "lion_32bit"}).optim, "lion");
  EXPECT_EQ(taken({"--lr-scheduler-type", "warmup_stable_decay"}).lr_scheduler_type, "wsd");
  EXPECT_EQ(taken({"--lr-scheduler-type", "constant_with_warmup"}).lr_scheduler_type,
            "constant_with_warmup");
}

TEST(OptimizerFlags, UnknownNamesGetTheNearest) {
  EXPECT_THAT(refused({"--optim", "adamm"}),
              AllOf(HasSubstr("--optim adamm: is not one of adamw, adam, sgd, adagrad, lion, "
                              "adafactor, lamb"),
                    HasSubstr("did you mean adam")));
  EXPECT_THAT(refused({"--lr-scheduler-type", "inverse-sqrt"}),
              HasSubstr("did you mean inverse_sqrt?"));
  EXPECT_THAT(refused({"--on-nonfinite", "skipp"}), HasSubstr("did you mean skip?"));
}

TEST(OptimizerFlags, AnOptimizerHasDefaultsOfItsOwn) {
  EXPECT_EQ(taken({"--optim", "lion"}).adam_beta2, 0.99);
  EXPECT_EQ(taken({"--optim", "lion", "--adam-beta2", "0.999"}).adam_beta2, 0.999);
  EXPECT_EQ(taken({"--optim", "adagrad"}).adam_epsilon, 1e-10);
  EXPECT_EQ(taken({"--optim", "adamw"}).adam_beta2, 0.999);
  EXPECT_EQ(taken({"--optim", "adamw"}).adam_epsilon, 1e-8);
}

TEST(OptimizerFlags, RefuseWhatDoesNotGoTogether) {
  const std::pair<Args, std::string> cases[] = {
      {{"--momentum", "0.9"}, "--momentum: is not used with --optim adamw, but with sgd"},
      {{"--optim", "lion", "--adam-epsilon", "1e-6"},
       "--adam-epsilon: is not used with --optim lion, but with adamw, adam, adagrad, lamb"},
      {{"--optim", "sgd", "--nesterov"}, "--nesterov: needs --momentum above 0"},
      {{"--optim", "adafactor", "--adafactor-warmup-init"},
       "--adafactor-warmup-init: needs --adafactor-relative-step"},
      {{"--optim", "adafactor", "--adafactor-relative-step", "--learning-rate", "1"},
       "--learning-rate: is not used with --adafactor-relative-step"},
      {{"--lr-gamma", "0.9"}, "--lr-gamma: is not used with --lr-scheduler-type linear"},
      {{"--lr-scheduler-type", "exponential"}, "needs --lr-gamma X"},
      {{"--lr-scheduler-type", "polynomial", "--lr-end", "1"},
       "--lr-end 1: is above --learning-rate 5e-05"},
      {{"--lr-scheduler-type", "wsd", "--warmup-steps", "6", "--lr-decay-steps", "5", "--max-steps",
        "10"},
       "--lr-decay-steps 5 behind --warmup-steps 6: are more than --max-steps 10"},
      {{"--warmup-steps", "1", "--warmup-ratio", "0.1"}, "exclude each other"},
      {{"--max-grad-norm", "1", "--clip-grad-value", "0.5"},
       "--max-grad-norm 1 and --clip-grad-value 0.5 exclude each other"},
      {{"--grad-norm-type", "two"}, "--grad-norm-type two: is not a number, nor inf"},
      {{"--grad-norm-type", "0"}, "--grad-norm-type 0: must be at least 0.1"},
      {{"--clip-grad-value", "0"}, "--clip-grad-value 0: must be above 0"},
      {{"--max-nonfinite-skips", "3"}, "--max-nonfinite-skips: needs --on-nonfinite skip"},
      {{"--param-group", "wte"}, "--param-group 'wte': is not REGEX:lr=X,weight_decay=X"},
      {{"--param-group", "wte:rate=1"}, "has the unknown key 'rate'"},
      {{"--param-group", "wte:lr=-1"}, "lr = -1: must be at least 0"},
      {{"--param-group", "wte:lr=1,lr=2"}, "has 'lr' twice"},
  };
  for (const auto& [args, message] : cases) EXPECT_THAT(refused(args), HasSubstr(message));
}

TEST(OptimizerFlags, AreWrittenAsArgumentsThatGiveThemAgain) {
  const OptimizerConfig c = taken({"--optim", "sgd", "--momentum", "0.9", "--nesterov",
                                   "--lr-scheduler-type", "exponential", "--lr-gamma", "0.5",
                                   "--clip-grad-value", "0.25", "--param-group", "a:b:lr=0.5"});
  const OptimizerConfig again = taken(optimizer_arguments(c));
  EXPECT_EQ(again.optim, "sgd");
  EXPECT_TRUE(again.nesterov);
  EXPECT_EQ(again.momentum, 0.9);
  EXPECT_EQ(again.lr_gamma, 0.5);
  EXPECT_EQ(again.clip_grad_value, 0.25);
  EXPECT_EQ(again.max_grad_norm, 0) << "clipping by value takes its place";
  EXPECT_THAT(again.param_group, ElementsAre("a:b:lr=0.5"));
}

TEST(OptimizerFlags, TheWrittenConfigurationOfEveryOptimizerIsTakenAgain) {
  for (const std::string& name : optimizer_names()) {
    const auto command = parse({"--optim", name, "--clip-grad-value", "0.5"});
    ASSERT_TRUE(command.ok()) << command.status().message();
    const test::TemporaryFolder folder;
    std::ofstream(folder.file("run.toml")) << effective_config(std::get<TrainConfig>(*command));
    const auto again = parse_command(Args{"train", "--config", folder.file("run.toml")});
    ASSERT_TRUE(again.ok()) << again.status().message();
    const OptimizerConfig& c = std::get<TrainConfig>(*again).optimizer;
    EXPECT_EQ(c.optim, name);
    EXPECT_EQ(c.clip_grad_value, 0.5);
    EXPECT_EQ(c.adam_beta2, name == "lion" ? 0.99 : 0.999);
  }
}

TEST(ParamGroup, IsAnExpressionWithNumbersBehindTheLastColon) {
  const auto group = parse_param_group("h\\.[0-3]:x:lr=0.1,weight_decay=0").value();
  EXPECT_EQ(group.pattern, "h\\.[0-3]:x");
  EXPECT_EQ(group.lr_multiplier, 0.1);
  EXPECT_EQ(group.weight_decay, 0);
  EXPECT_FALSE(parse_param_group("a:lr=2").value().weight_decay.has_value());
}

TEST(NormType, IsANumberOrInfinity) {
  EXPECT_EQ(parse_norm_type("3").value(), 3);
  EXPECT_TRUE(std::isinf(parse_norm_type("inf").value()));
}

}  // namespace
}  // namespace strata::config
