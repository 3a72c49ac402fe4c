// --config FILE.toml, and the configuration that is written with a run.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "strata/config/config.h"

namespace strata::config {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() {
    std::string name = testing::TempDir() + "strata_config_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ConfigFile() override { std::filesystem::remove_all(folder_); }

  Result<Command> parse(const std::string& toml, std::vector<std::string> more = {}) {
    std::ofstream(path()) << toml;
    std::vector<std::string> args = {"train", "--config", path()};
    args.insert(args.end(), more.begin(), more.end());
    return parse_command(args);
  }
  TrainConfig train(const std::string& toml, std::vector<std::string> more = {}) {
    const Result<Command> command = parse(toml, std::move(more));
    EXPECT_TRUE(command.ok()) << command.status().message();
    return command.ok() ? std::get<TrainConfig>(*command) : TrainConfig{};
  }
  std::string refused(const std::string& toml, std::vector<std::string> more = {}) {
    const Result<Command> command = parse(toml, std::move(more));
    EXPECT_FALSE(command.ok()) << "was taken";
    return command.ok() ? "" : command.status().message();
  }
  std::string path() const { return folder_ + "/run.toml"; }

  std::string folder_;
};

constexpr const char* kBase = "model = 'm'\ndata = 'd'\n";

TEST_F(ConfigFile, TakesTheNamesOfTheFlags) {
  const TrainConfig c = train(std::string(kBase) +
                              "learning_rate = 1e-3\nmax-steps = 7\nprecision = 32\n"
                              "weight-decay = 1\nno-progress = true\nplugin-path = ['a', 'b']\n"
                              "strategy = 'fsdp'\nset = ['limit_all_gathers=1']\n");
  EXPECT_EQ(c.model, "m");
  EXPECT_EQ(c.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(c.optimizer.weight_decay, 1);
  EXPECT_EQ(c.max_steps, 7);
  EXPECT_TRUE(c.no_progress);
  EXPECT_THAT(c.placement.plugin_path, ElementsAre("a", "b"));
  EXPECT_THAT(c.placement.set, ElementsAre("limit_all_gathers=1"));
  EXPECT_EQ(c.config, path());
}

TEST_F(ConfigFile, MayBeEmpty) { EXPECT_EQ(train("", {"--model", "m", "--data", "d"}).model, "m"); }

TEST_F(ConfigFile, IsAFile) {
  std::string named = "--config=" + folder_;
  EXPECT_THAT(parse_command(std::vector<std::string>{"train", named}).status().message(),
              AllOf(HasSubstr("it is a folder"), HasSubstr("HINT")));
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  named += "/pipe";
  EXPECT_THAT(parse_command(std::vector<std::string>{"train", named}).status().message(),
              AllOf(HasSubstr("a pipe or a device"), HasSubstr("HINT")));
  EXPECT_THAT(parse_command(std::vector<std::string>{"train", named + "s"}).status().message(),
              AllOf(HasSubstr("does not exist"), HasSubstr("HINT")));
}

TEST_F(ConfigFile, LosesAgainstTheCommandLine) {
  const TrainConfig c = train(std::string(kBase) + "max-steps = 7\nseed = 3\nno-progress = true\n",
                              {"--seed", "4", "--no-progress=false", "--model", "other"});
  EXPECT_EQ(c.seed, 4);
  EXPECT_EQ(c.max_steps, 7);
  EXPECT_EQ(c.model, "other");
  EXPECT_FALSE(c.no_progress);
}

TEST_F(ConfigFile, LosesAgainstAFlagThatExcludesOneOfItsKeys) {
  const TrainConfig c = train(std::string(kBase) + "max-steps = 7\n", {"--num-train-epochs", "2"});
  EXPECT_FALSE(c.max_steps.has_value());
  EXPECT_EQ(c.num_train_epochs, 2.0);
}

TEST_F(ConfigFile, StrategyOptionsAreReplacedKeyByKey) {
  const TrainConfig c = train(std::string(kBase) +
                                  "strategy = 'fsdp'\n[set]\nlimit_all_gathers = 1\n"
                                  "reshard_after_forward = false\n",
                              {"--set", "limit_all_gathers=3"});
  EXPECT_THAT(c.placement.set, ElementsAre("reshard_after_forward=false", "limit_all_gathers=3"));
}

TEST_F(ConfigFile, ReportsUnknownKeysAndBadValuesWithTheirLines) {
  const std::string message = refused(
      "model = 'm'\ndata = 'd'\nlearning-rat = 1\nmax-steps = 0\n"
      "seed = '5'\nno-progress = 1\noutput-dir = [1]\n[optimizer]\na = 1\n",
      {"--timeout", "x"});
  EXPECT_THAT(message, HasSubstr("7 mistakes"));
  EXPECT_THAT(message,
              HasSubstr("run.toml:3: learning-rat: unknown key, did you mean learning-rate?"));
  EXPECT_THAT(message, HasSubstr("run.toml:4: max-steps = 0: must be at least 1"));
  EXPECT_THAT(message, HasSubstr("run.toml:5: seed: must be a number, without quotes"));
  EXPECT_THAT(message, HasSubstr("run.toml:6: no-progress: must be true or false"));
  EXPECT_THAT(message, HasSubstr("run.toml:7: output-dir: must be a string in quotes"));
  EXPECT_THAT(message, HasSubstr("run.toml:8: optimizer: unknown key"));
  EXPECT_THAT(message, HasSubstr("--timeout x: is not a number"));
}

TEST_F(ConfigFile, RefusesAKeyThatIsGivenTwiceInTwoSpellings) {
  EXPECT_THAT(refused(std::string(kBase) + "max-steps = 1\nmax_steps = 2\n"),
              HasSubstr("is given twice"));
}

TEST_F(ConfigFile, ThatIsNotTomlIsRefusedWithTheLine) {
  EXPECT_THAT(refused("model = 'm'\ndata = = 3\n"), HasSubstr("run.toml:2:"));
}

TEST_F(ConfigFile, ThatIsNotThereIsRefusedByName) {
  const auto command =
      parse_command(std::vector<std::string>{"train", "--config", "/no/such.toml"});
  ASSERT_FALSE(command.ok());
  EXPECT_EQ(command.status().code(), Code::kNotFound);
  EXPECT_THAT(command.status().message(), HasSubstr("'/no/such.toml' does not exist"));
  EXPECT_THAT(
      parse_command(std::vector<std::string>{"train", "--config", folder_}).status().message(),
      HasSubstr("it is a folder"));
}

TEST_F(ConfigFile, TheWrittenConfigurationReadsBackTheSame) {
  const TrainConfig first =
      train(std::string(kBase) + "max-steps = 7\n",
            {"--strategy", "fsdp", "--set", "a=\"quoted\" \\ text", "--devices", "3",
             "--learning-rate", "0.1", "--save-total-limit", "2", "--output-dir", "o'dir",
             "--resume-from-checkpoint", "latest", "--activation-checkpointing"});
  const std::string text = effective_config(first);
  const TrainConfig second = train(text);
  EXPECT_EQ(effective_config(second), text);
  EXPECT_EQ(second.placement.set, first.placement.set);
  EXPECT_EQ(second.output_dir, "o'dir");
  EXPECT_EQ(second.max_steps, 7);
  EXPECT_THAT(text, AllOf(HasSubstr("# Optimizer"), HasSubstr("learning-rate = 0.1\n"),
                          HasSubstr("strategy = \"fsdp\"")));
}

}  // namespace
}  // namespace strata::config
