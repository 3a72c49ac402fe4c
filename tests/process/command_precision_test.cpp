// `strata train --precision` as a user starts it: 16 bits, a loss scale that overflows, resumes and
// ends, requests that a strategy cannot meet.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/process/command_fixture.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PrecisionCommand : public CommandTest {
 protected:
  // fp16 from a scale that overflows, shrinks, and grows again.
  Args fp16(const std::string& output_dir, const Args& more) const {
    Args args = {"--precision",         "fp16-mixed", "--init-scale", "67108864",
                 "--loss-scale-window", "2",          "--max-steps",  "20",
                 "--lr-scheduler-type", "linear",     "--devices",    "2",
                 "--strategy",          "zero2"};
    args.insert(args.end(), more.begin(), more.end());
    return train(output_dir, args);
  }
};

TEST_F(PrecisionCommand, TrainsIn16BitsWithFp32Masters) {
  succeed(train("fp32", {"--strategy", "fsdp", "--devices", "2"}));
  const Ended ended =
      succeed(train("bf16", {"--strategy", "fsdp", "--devices", "2", "--precision", "bf16-mixed"}));
  EXPECT_THAT(ended.out, HasSubstr("bf16-mixed (units bf16, gradients fp32, sent in fp32"));
  const auto fp32 = json("fp32/summary.json");
  const auto bf16 = json("bf16/summary.json");
  EXPECT_EQ(fp32["precision"], "32");
  EXPECT_EQ(bf16["precision"], "bf16-mixed");
  EXPECT_EQ(bf16["loss_scale"], 1.0);
  EXPECT_NE(bf16["losses"], fp32["losses"]);
  EXPECT_NEAR(bf16["final_loss"].get<double>(), fp32["final_loss"].get<double>(), 0.05);
  const auto bytes = [](const auto& summary, const char* key) {
    return summary["ranks"][0][key].template get<int64_t>();
  };
  EXPECT_EQ(bytes(bf16, "param_bytes") * 2, bytes(fp32, "param_bytes"));
  EXPECT_EQ(bytes(bf16, "optimizer_bytes") * 2, bytes(fp32, "optimizer_bytes") * 3)
      << "masters beside two moments";

  // A checkpoint holds masters: any precision goes on from it, and the text is the same.
  succeed(train("more", {"--max-steps", "8", "--resume-from-checkpoint", "bf16/latest"}));
  const Args generate = {"generate",  "--checkpoint", "bf16/latest",      "--prompt",
                         "the light", "--greedy",     "--max-new-tokens", "4"};
  Args in_bf16 = generate;
  in_bf16.insert(in_bf16.end(), {"--precision", "bf16-mixed"});
  Args sharded = in_bf16;
  sharded.insert(sharded.end(), {"--strategy", "fsdp", "--devices", "2"});
  EXPECT_THAT(succeed(generate).out, HasSubstr("the light"));
  EXPECT_EQ(succeed(sharded).out, succeed(in_bf16).out);
}

TEST_F(PrecisionCommand, AnFp16RunFindsItsLossScaleAndLearns) {
  const Ended ended = succeed(fp16("out", {}));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("step 1 is skipped: gradients overflow at loss scale "
                                         "67108864"),
                               Not(HasSubstr("step 20 is skipped"))));
  const auto metrics = lines("out/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 20U);
  EXPECT_EQ(metrics[0]["loss_scale"], 67108864.0);
  EXPECT_EQ(metrics[1]["loss_scale"], 67108864.0) << "the first overflow uses the allowance";
  EXPECT_EQ(metrics[2]["loss_scale"], 33554432.0);
  int skipped = 0;
  double lr = -1;
  for (const auto& line : metrics) {
    const bool is_skipped = line["skipped_steps"].get<int>() > skipped;
    // A step that is skipped leaves the learning rate where it is for the next one.
    if (lr < 0) {
      EXPECT_EQ(line["lr"], metrics[0]["lr"]);
    } else {
      EXPECT_LE(line["lr"].get<double>(), lr);
    }
    if (!is_skipped) lr = line["lr"];
    skipped = line["skipped_steps"];
  }
  EXPECT_GT(skipped, 2);
  EXPECT_LT(skipped, 18);
  const auto summary = json("out/summary.json");
  EXPECT_EQ(summary["skipped_steps"], skipped);
  EXPECT_EQ(summary["loss_scale"], metrics[19]["loss_scale"]);
  EXPECT_LT(summary["final_loss"].get<double>(), metrics[0]["loss"].get<double>() - 0.1);
}

TEST_F(PrecisionCommand, AResumedFp16RunGoesOnWithItsLossScale) {
  succeed(fp16("whole", {"--save-steps", "11"}));
  succeed(fp16("resumed", {"--resume-from-checkpoint", "whole/checkpoint-11"}));
  const auto state = json("whole/checkpoint-11/manifest.json")["state"]["loss_scale"];
  EXPECT_GT(state["scale"].get<double>(), 0);
  const auto whole = lines("whole/metrics.jsonl");
  const auto resumed = lines("resumed/metrics.jsonl");
  ASSERT_EQ(resumed.size(), 9U);
  for (size_t i = 0; i < resumed.size(); ++i) {
    EXPECT_EQ(resumed[i]["loss_scale"], whole[i + 11]["loss_scale"]) << i;
    EXPECT_EQ(resumed[i]["loss"], whole[i + 11]["loss"]) << i;
    EXPECT_EQ(resumed[i]["lr"], whole[i + 11]["lr"]) << i;
  }
  EXPECT_EQ(json("resumed/summary.json")["weight_hash"], json("whole/summary.json")["weight_hash"]);
}

TEST_F(PrecisionCommand, EndsAtTheSmallestLossScaleWithStepScaleAndParameters) {
  const Ended ended = run(fp16("out", {"--min-loss-scale", "33554432", "--save-steps", "1"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(
      ended.err,
      AllOf(HasSubstr("step 3: train: gradients overflow at loss scale 33554432"),
            HasSubstr("--min-loss-scale 33554432"), HasSubstr("'transformer."), HasSubstr("HINT")));
  EXPECT_FALSE(exists("out/summary.json"));
  // What was saved meanwhile is as initialised: finite, and without an update.
  EXPECT_EQ(json("out/latest/manifest.json")["state"]["optimizer"]["step"], 0);
}

TEST_F(PrecisionCommand, StopsInBf16NamingTheParameters) {
  const Ended ended = run(train("out", {"--precision", "bf16-mixed", "--learning-rate", "1e38",
                                        "--max-grad-norm", "0", "--save-steps", "0"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("step 2: train: loss"), HasSubstr("not finite"),
                               HasSubstr("in the gradients of 'transformer."), HasSubstr("HINT")));
  EXPECT_FALSE(exists("out/latest"));
}

TEST_F(PrecisionCommand, RefusesAStrategyThatHasNotTheDtype) {
  const std::string plugin = STRATA_BINARY_DIR "/tests/abi_plugins/all/libstrata_plain_c.so";
  const Ended ended = run(train("out", {"--strategy", plugin, "--precision", "bf16-true"}));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("computing in bf16 is asked for, it has f32"),
                               HasSubstr("reducing in bf16 is asked for"),
                               HasSubstr("--grad-accum-dtype"), HasSubstr("HINT: --precision")));
  EXPECT_FALSE(exists("out"));
}

TEST_F(PrecisionCommand, IsMeasuredAndCompared) {
  const Ended bench = succeed({"bench", "step", "--model", "tiny.json", "--sequence-length", "16",
                               "--max-steps", "2", "--skip-steps", "0", "--precision", "fp16-mixed",
                               "--strategy", "fsdp", "--devices", "2"});
  EXPECT_THAT(bench.out, HasSubstr("\"precision\":\"fp16-mixed\""));
  const Ended compared = succeed({"bench", "strategies", "--model", "tiny.json", "--data",
                                  "text.txt", "--sequence-length", "16", "--global-batch-size", "4",
                                  "--max-steps", "2", "--precision", "bf16-mixed", "--strategies",
                                  "ddp,fsdp", "--output-dir", "compared"});
  EXPECT_THAT(compared.out, HasSubstr("identical to ddp"));
  EXPECT_EQ(json("compared/fsdp/summary.json")["precision"], "bf16-mixed");
}

}  // namespace
}  // namespace strata::tests
