// The command line becomes a configuration, or one report of all mistakes.
#include "strata/config/config.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace strata::config {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Args = std::vector<std::string>;

Args operator+(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Args kTrain = {"train", "--model", "gpt2", "--data", "a.txt"};

TrainConfig train(const Args& more) {
  Result<Command> command = parse_command(kTrain + more);
  EXPECT_TRUE(command.ok()) << command.status().message();
  return command.ok() ? std::get<TrainConfig>(*command) : TrainConfig{};
}

// The message with which the arguments are refused.
std::string refused(const Args& args) {
  const Result<Command> command = parse_command(args);
  EXPECT_FALSE(command.ok()) << "was taken";
  return command.ok() ? "" : command.status().message();
}
std::string train_refused(const Args& more) { return refused(kTrain + more); }

TEST(TrainCommandLine, HasTheDefaultsOfTheFieldsTrainers) {
  const TrainConfig c = train({});
  EXPECT_EQ(c.model, "gpt2");
  EXPECT_EQ(c.batch.per_device_train_batch_size, 8);
  EXPECT_EQ(c.optimizer.learning_rate, 5e-5);
  EXPECT_EQ(c.optimizer.lr_scheduler_type, "linear");
  EXPECT_EQ(c.optimizer.max_grad_norm, 1.0);
  EXPECT_EQ(c.seed, 42);
  EXPECT_EQ(c.num_train_epochs, 3.0);
  EXPECT_FALSE(c.max_steps.has_value());
  EXPECT_EQ(c.placement.strategy, kAutoStrategy);
  EXPECT_FALSE(c.placement.devices_given);
}

TEST(TrainCommandLine, ReadsEveryFlag) {
  const TrainConfig c = train({"--tokenizer",
                               "tok",
                               "--sequence-length=64",
                               "--strategy",
                               "fsdp:reshard_after_forward=false",
                               "--set",
                               "limit_all_gathers=1",
                               "--set",
                               "min_num_params=10",
                               "--plugin-path",
                               "a",
                               "--plugin-path",
                               "b",
                               "--devices",
                               "2",
                               "--precision",
                               "32-true",
                               "--accelerator",
                               "cpu",
                               "--per-device-train-batch-size",
                               "4",
                               "--gradient-accumulation-steps",
                               "3",
                               "--learning-rate",
                               "1e-3",
                               "--weight-decay",
                               "0.1",
                               "--adam-beta1",
                               "0.8",
                               "--adam-beta2",
                               "0.95",
                               "--adam-epsilon",
                               "1e-6",
                               "--warmup-steps",
                               "10",
                               "--lr-scheduler-type",
                               "cosine",
                               "--max-grad-norm",
                               "0",
                               "--max-steps",
                               "100",
                               "--seed",
                               "7",
                               "--output-dir",
                               "out",
                               "--logging-steps",
                               "5",
                               "--save-steps",
                               "50",
                               "--save-total-limit",
                               "2",
                               "--resume-from-checkpoint",
                               "latest",
                               "--activation-checkpointing",
                               "--timeout",
                               "30",
                               "--check-plugin",
                               "--no-progress",
                               "--all-ranks-output"});
  EXPECT_EQ(c.data.tokenizer, "tok");
  EXPECT_EQ(c.data.sequence_length, 64);
  EXPECT_EQ(c.placement.strategy, "fsdp:reshard_after_forward=false");
  EXPECT_THAT(c.placement.set, ElementsAre("limit_all_gathers=1", "min_num_params=10"));
  EXPECT_THAT(c.placement.plugin_path, ElementsAre("a", "b"));
  EXPECT_EQ(c.placement.devices, 2);
  EXPECT_TRUE(c.placement.devices_given);
  EXPECT_EQ(c.placement.precision, "32");
  EXPECT_EQ(c.placement.timeout_s, 30);
  EXPECT_TRUE(c.placement.check_plugin && c.placement.all_ranks_output && c.no_progress);
  EXPECT_TRUE(c.batch.activation_checkpointing);
  EXPECT_EQ(c.batch.gradient_accumulation_steps, 3);
  EXPECT_EQ(c.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(c.optimizer.lr_scheduler_type, "cosine");
  EXPECT_EQ(c.max_steps, 100);
  EXPECT_FALSE(c.num_train_epochs.has_value());
  EXPECT_EQ(c.save_total_limit, 2);
  EXPECT_EQ(c.resume_from_checkpoint, "out/latest");
}

TEST(TrainCommandLine, TakesUnderscoresForDashes) {
  EXPECT_EQ(train({"--max_steps", "3", "--output_dir=a_b"}).output_dir, "a_b");
}

TEST(TrainCommandLine, LeavesTheStrategyToTheProgramUnlessTold) {
  EXPECT_EQ(train({"--devices", "2"}).placement.strategy, kAutoStrategy);
  EXPECT_EQ(train({"--devices", "2", "--strategy", "fsdp"}).placement.strategy, "fsdp");
}

TEST(TrainCommandLine, SwitchesCanBeTurnedOff) {
  EXPECT_FALSE(train({"--no-progress=false"}).no_progress);
}

TEST(TrainCommandLine, RefusesAnUnknownFlagAndNamesTheNearest) {
  EXPECT_THAT(train_refused({"--learnng-rate", "1e-3"}),
              AllOf(HasSubstr("--learnng-rate: unknown flag"), HasSubstr("--learning-rate?"),
                    Not(HasSubstr("'1e-3'"))));
}

TEST(TrainCommandLine, DoesNotGuessAbbreviations) {
  EXPECT_THAT(train_refused({"--max-st", "1"}), HasSubstr("--max-st: unknown flag"));
}

TEST(TrainCommandLine, RefusesEachBadNumberWithItsValue) {
  const std::pair<Args, std::string> cases[] = {
      {{"--per-device-train-batch-size", "0"},
       "--per-device-train-batch-size 0: must be at least 1"},
      {{"--sequence-length", "1"}, "--sequence-length 1: must be at least 2"},
      {{"--sequence-length", "-5"}, "--sequence-length -5: must be at least 2"},
      {{"--devices", "0"}, "--devices 0: must be at least 1"},
      {{"--devices", "2.5"}, "--devices 2.5: is not a whole number"},
      {{"--max-steps", "12x"}, "--max-steps 12x: is not a whole number"},
      {{"--max-steps", "1e3"}, "--max-steps 1e3: is not a whole number"},
      {{"--learning-rate", "nan"}, "--learning-rate nan: is not a finite number"},
      {{"--learning-rate", "-1e-3"}, "--learning-rate -1e-3: must be at least 0"},
      {{"--learning-rate", "fast"}, "--learning-rate fast: is not a number"},
      {{"--adam-beta1", "1"}, "--adam-beta1 1: must be below 1"},
      {{"--adam-epsilon", "0"}, "--adam-epsilon 0: must be above 0"},
      {{"--timeout", "0"}, "--timeout 0: must be at least 0.001"},
      {{"--timeout", "1e300"}, "--timeout 1e300: must be at most 1000000"},
      {{"--num-train-epochs", "1e18"}, "--num-train-epochs 1e18: must be at most 1000000"},
      {{"--save-total-limit", "4294967296"}, "--save-total-limit 4294967296: must be at most"},
      {{"--seed", "-1"}, "--seed -1: must be at least 0"},
      {{"--max-steps", "99999999999999999999"}, "is too large a number"},
      {{"--output-dir", ""}, "--output-dir '': is empty"},
      {{"--max-steps="}, "--max-steps: needs a value"},
      {{"--max-steps", "--seed", "1"}, "--max-steps: needs a value"},
      {{"--no-progress=maybe"}, "--no-progress maybe: is not true or false"},
      {{"--lr-scheduler-type", "cosin"}, "did you mean cosine?"},
      {{"--set", "novalue"}, "--set novalue: is not key=value"},
      {{"--max-steps", "5", "--warmup-steps", "6"},
       "--warmup-steps 6: are more than --max-steps 5"},
      {{"surplus"}, "'surplus': unexpected argument"},
      {{"-x"}, "'-x': unexpected argument"},
  };
  for (const auto& [args, message] : cases) {
    const Args strategy = args[0] == "--set" ? Args{"--strategy", "ddp"} : Args{};
    EXPECT_THAT(train_refused(args + strategy), HasSubstr(message));
  }
}

TEST(TrainCommandLine, RefusesInWordsWhatIsKnownButNotThereYet) {
  EXPECT_THAT(train_refused({"--precision", "64"}),
              HasSubstr("--precision 64: is not supported yet; supported are 32, bf16-mixed, "
                        "bf16-true, fp16-mixed"));
  EXPECT_THAT(train_refused({"--precision", "33"}), HasSubstr("unknown precision"));
  EXPECT_THAT(train_refused({"--accelerator", "cuda"}),
              HasSubstr("--accelerator cuda: is not supported yet; supported are auto, cpu"));
}

TEST(TrainCommandLine, RefusesFlagsThatExcludeEachOther) {
  EXPECT_THAT(train_refused({"--max-steps", "1", "--num-train-epochs", "2"}),
              HasSubstr("--max-steps and --num-train-epochs exclude each other"));
  EXPECT_THAT(train_refused({"--tokenizer", "t", "--vocab-size", "300"}),
              HasSubstr("--tokenizer and --vocab-size exclude each other"));
  EXPECT_THAT(train_refused({"--set", "a=b"}), HasSubstr("needs --strategy"));
  EXPECT_THAT(train_refused({"--seed", "1", "--seed", "2"}),
              HasSubstr("--seed: is given with different values: 1, 2"));
}

TEST(TrainCommandLine, ReportsAllMistakesAtOnce) {
  const std::string message = refused({"train", "--model", "gpt2", "--learnng-rate", "1",
                                       "--max-steps", "x", "--devices", "0", "--timeout"});
  EXPECT_THAT(message, HasSubstr("5 mistakes"));
  EXPECT_THAT(message, HasSubstr("--learnng-rate: unknown flag"));
  EXPECT_THAT(message, HasSubstr("--max-steps x: is not a whole number"));
  EXPECT_THAT(message, HasSubstr("--devices 0: must be at least 1"));
  EXPECT_THAT(message, HasSubstr("--timeout: needs a value"));
  EXPECT_THAT(message, HasSubstr("--data FILE: is required"));
  EXPECT_THAT(message, HasSubstr("HINT: strata train --help"));
}

TEST(TrainCommandLine, AMissingValueIsOneMistakeOnly) {
  EXPECT_THAT(refused({"train", "--model", "m", "--data"}),
              AllOf(HasSubstr("strata train: --data: needs a value"), Not(HasSubstr("required"))));
}

TEST(TrainCommandLine, HelpNamesEveryFlagWithDefaultAndUnit) {
  const Result<Command> command = parse_command(Args{"train", "--help"});
  ASSERT_TRUE(command.ok());
  const std::string& help = std::get<ShowText>(*command).text;
  for (const char* part :
       {"--model FOLDER|CONFIG.json", "--per-device-train-batch-size SAMPLES", "(default: 8)",
        "--timeout SECONDS", "(default: 600)", "linear, cosine, constant", "adamw_torch is adamw",
        "Strategy and placement", "--no-progress", "3 without --max-steps"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
}

TEST(CommandLine, EveryCommandHasHelp) {
  for (const Args& command : std::vector<Args>{{"train"},
                                               {"generate"},
                                               {"export"},
                                               {"bench", "step"},
                                               {"bench", "comm"},
                                               {"bench", "startup"},
                                               {"bench", "strategies"},
                                               {"plugins", "list"},
                                               {"plugins", "info"},
                                               {"plugins", "check"},
                                               {"doctor"}}) {
    const Result<Command> parsed = parse_command(command + Args{"--help"});
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_THAT(std::get<ShowText>(*parsed).text, HasSubstr("Usage: strata " + command[0]));
  }
}

TEST(CommandLine, NamesTheNearestCommand) {
  EXPECT_THAT(refused({"trian"}), HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(refused({"bench", "stp"}), HasSubstr("did you mean 'bench step'?"));
  EXPECT_THAT(refused({"bench"}), HasSubstr("'bench' needs another word"));
  EXPECT_THAT(refused({}), HasSubstr("strata --help"));
}

TEST(CommandLine, GenerateNeedsExactlyOneSourceOfWeights) {
  EXPECT_THAT(refused({"generate", "--prompt", "a"}), HasSubstr("--checkpoint FOLDER or --model"));
  EXPECT_THAT(refused({"generate", "--prompt", "a", "--model", "m", "--checkpoint", "c"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refused({"generate", "--prompt", "a", "--model", "m", "--greedy", "--top-k", "3"}),
              HasSubstr("--greedy and --top-k exclude each other"));
  const auto command =
      parse_command(Args{"generate", "--checkpoint", "c", "--prompt", "In the", "--top-p", "0.9"});
  ASSERT_TRUE(command.ok()) << command.status().message();
  EXPECT_EQ(std::get<GenerateConfig>(*command).top_p, 0.9);
}

TEST(CommandLine, BenchStrategiesKeepsTheOptionsOfEachStrategy) {
  const auto command =
      parse_command(Args{"bench", "strategies", "--model", "m", "--data", "d", "--strategies",
                         "single,fsdp:a=1,b=2,ddp:c=x", "--global-batch-size", "8"});
  ASSERT_TRUE(command.ok()) << command.status().message();
  EXPECT_THAT(std::get<BenchStrategiesConfig>(*command).strategies,
              ElementsAre("single", "fsdp:a=1,b=2", "ddp:c=x"));
  EXPECT_THAT(
      refused({"bench", "strategies", "--model", "m", "--data", "d", "--global-batch-size", "3"}),
      HasSubstr("--global-batch-size 3: does not divide by 2 ranks"));
}

TEST(CommandLine, BenchCommReadsSizesWithUnits) {
  const auto command = parse_command(Args{"bench", "comm", "--max-bytes", "1MiB"});
  ASSERT_TRUE(command.ok()) << command.status().message();
  EXPECT_EQ(std::get<BenchCommConfig>(*command).max_bytes, 1u << 20);
  EXPECT_EQ(std::get<BenchCommConfig>(*command).placement.devices, 2);
  EXPECT_THAT(refused({"bench", "comm", "--max-bytes", "512"}), HasSubstr("is more than"));
}

TEST(CommandLine, PluginsTakeAFile) {
  const auto command = parse_command(Args{"plugins", "info", "a.so"});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(std::get<PluginsInfoConfig>(*command).file, "a.so");
  EXPECT_THAT(refused({"plugins", "check"}), HasSubstr("FILE: is required"));
  EXPECT_THAT(refused({"plugins", "info", "a.so", "b.so"}), HasSubstr("'b.so': unexpected"));
}

}  // namespace
}  // namespace strata::config
