// --precision and the flags beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/config/config.h"
#include "strata/config/precision_flags.h"

namespace strata::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Args = std::vector<std::string>;

Result<Command> parse(const Args& more) {
  Args args = {"train", "--model", "m", "--data", "d"};
  args.insert(args.end(), more.begin(), more.end());
  return parse_command(args);
}

TrainConfig train(const Args& more) {
  const auto command = parse(more);
  EXPECT_TRUE(command.ok()) << command.status().message();
  return command.ok() ? std::get<TrainConfig>(*command) : TrainConfig{};
}

std::string refused(const Args& more) {
  const auto command = parse(more);
  EXPECT_FALSE(command.ok()) << "was taken";
  return command.ok() ? "" : command.status().message();
}

TEST(PrecisionFlags, TakeTheNamesOfFabric) {
  const std::pair<const char*, const char*> names[] = {
      {"32", "32"},           {"32-true", "32"},          {"bf16-mixed", "bf16-mixed"},
      {"bf16", "bf16-mixed"}, {"bf16-true", "bf16-true"}, {"fp16-mixed", "fp16-mixed"},
      {"16", "fp16-mixed"},   {"16-mixed", "fp16-mixed"}};
  for (const auto& [given, meant] : names) {
    EXPECT_EQ(train({"--precision", given}).placement.precision, meant);
  }
}

TEST(PrecisionFlags, LeaveWhatIsNotGivenToThePrecision) {
  const PrecisionConfig c = train({"--precision", "fp16-mixed"}).precision;
  EXPECT_EQ(c.reduce_dtype + c.grad_accum_dtype + c.buffer_dtype, "");
  EXPECT_EQ(c.loss_scale, 0);
  EXPECT_EQ(c.init_scale, 65536);
  EXPECT_EQ(c.loss_scale_window, 1000);
  EXPECT_EQ(c.hysteresis, 2);
  EXPECT_FALSE(c.consecutive_hysteresis);
  EXPECT_EQ(c.min_loss_scale, 1);
  EXPECT_EQ(c.loss_scale_rule, "deepspeed");
}

TEST(PrecisionFlags, GoToTheirFields) {
  const PrecisionConfig c =
      train({"--precision", "fp16-mixed", "--reduce-dtype", "fp16", "--grad-accum-dtype", "bf16",
             "--buffer-dtype", "fp16", "--init-scale", "1024", "--loss-scale-window", "7",
             "--hysteresis", "3", "--consecutive-hysteresis", "--min-loss-scale", "0.5"})
          .precision;
  EXPECT_EQ(c.reduce_dtype, "fp16");
  EXPECT_EQ(c.grad_accum_dtype, "bf16");
  EXPECT_EQ(c.buffer_dtype, "fp16");
  EXPECT_EQ(c.init_scale, 1024);
  EXPECT_EQ(c.loss_scale_window, 7);
  EXPECT_EQ(c.hysteresis, 3);
  EXPECT_TRUE(c.consecutive_hysteresis);
  EXPECT_EQ(c.min_loss_scale, 0.5);
}

TEST(PrecisionFlags, RefuseWhatWouldHaveNoEffect) {
  const std::pair<Args, const char*> cases[] = {
      {{"--init-scale", "8"}, "--init-scale: is used by --precision fp16-mixed alone"},
      {{"--precision", "bf16-mixed", "--loss-scale", "8"},
       "--loss-scale: is used by --precision fp16-mixed alone"},
      {{"--precision", "fp16-mixed", "--loss-scale", "8", "--hysteresis", "3"},
       "--hysteresis: --loss-scale 8 fixes the scale"},
      {{"--precision", "fp16-mixed", "--loss-scale-rule", "torch", "--hysteresis", "3"},
       "--hysteresis: --loss-scale-rule torch has none"},
      {{"--precision", "fp16-mixed", "--init-scale", "2", "--min-loss-scale", "4"},
       "--init-scale 2: is less than --min-loss-scale 4"},
      {{"--reduce-dtype", "bfloat16"}, "--reduce-dtype bfloat16: unknown dtype; known are fp32"},
      {{"--precision", "bf16-true", "--buffer-dtype", "fp16"},
       "--buffer-dtype fp16: with --precision bf16-true it is fp32 or bf16"},
  };
  for (const auto& [args, message] : cases) EXPECT_THAT(refused(args), HasSubstr(message));
}

TEST(PrecisionFlags, ComeBackFromTheConfigurationThatIsWritten) {
  const TrainConfig c = train({"--precision", "bf16-true", "--reduce-dtype", "fp32"});
  const std::string text = effective_config(c);
  EXPECT_THAT(text, HasSubstr("precision = \"bf16-true\""));
  EXPECT_THAT(text, HasSubstr("reduce-dtype = \"fp32\""));
}

TEST(PrecisionFlags, BecomeArgumentsAgain) {
  EXPECT_THAT(precision_arguments("32", {}), ElementsAre("--precision", "32"));
  PrecisionConfig c;
  c.reduce_dtype = "bf16";
  c.init_scale = 1e30;
  c.consecutive_hysteresis = true;
  const Args args = precision_arguments("fp16-mixed", c);
  const PrecisionConfig again = train(args).precision;
  EXPECT_EQ(again.reduce_dtype, "bf16");
  EXPECT_EQ(again.init_scale, 1e30);
  EXPECT_TRUE(again.consecutive_hysteresis);
  c = {};
  c.loss_scale = 128;
  EXPECT_EQ(train(precision_arguments("fp16-mixed", c)).precision.loss_scale, 128);
}

TEST(PrecisionFlags, OfBenchCommAreRefused) {
  const auto command = parse_command(Args{"bench", "comm", "--precision", "bf16-mixed"});
  ASSERT_FALSE(command.ok());
  EXPECT_THAT(command.status().message(), HasSubstr("collectives are measured in fp32"));
}

}  // namespace
}  // namespace strata::config
