// `strata train`, `generate` and `export` as a user starts them: exit codes, files, and the same
// numbers under every strategy.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "tests/process/command_fixture.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// ---- train ----

TEST_F(CommandTest, TrainingLeavesMetricsSummaryAndACheckpoint) {
  const Ended ended =
      succeed(train("out", {"--strategy", "fsdp", "--devices", "2", "--max-steps", "3"}));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("fsdp"), HasSubstr("2 ranks"), HasSubstr("entropy")));
  EXPECT_EQ(ended.err, "");

  const auto metrics = lines("out/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_THAT(
      keys_of(metrics[0]),
      UnorderedElementsAre("step", "loss", "grad_norm", "lr", "tokens", "skipped_steps",
                           "loss_scale", "tokens_per_s", "step_s", "data_s", "comm_s", "sent_bytes",
                           "device_bytes", "device_peak_bytes", "host_peak_bytes"));
  EXPECT_EQ(metrics[2]["step"], 3);
  EXPECT_EQ(metrics[0]["tokens"], 2 * 2 * 15);
  for (const char* positive : {"loss", "grad_norm", "step_s", "sent_bytes", "device_bytes",
                               "device_peak_bytes", "host_peak_bytes"}) {
    EXPECT_GT(metrics[1][positive].get<double>(), 0) << positive;
  }

  const auto summary = json("out/summary.json");
  EXPECT_THAT(keys_of(summary),
              UnorderedElementsAre("status", "steps", "skipped_steps", "loss_scale", "precision",
                                   "final_loss", "losses", "weight_hash", "ranks", "strategy",
                                   "plugin", "wall_s", "first_step_s"));
  EXPECT_EQ(summary["status"], "completed");
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["losses"].size(), 3U);
  EXPECT_EQ(summary["losses"][2], summary["final_loss"]);
  EXPECT_EQ(summary["losses"][1], metrics[1]["loss"]) << "full precision in both";
  EXPECT_EQ(summary["strategy"], "fsdp");
  EXPECT_THAT(keys_of(summary["plugin"]), UnorderedElementsAre("path", "id", "version", "abi"));
  EXPECT_EQ(summary["ranks"].size(), 2U);
  EXPECT_THAT(keys_of(summary["ranks"][1]),
              UnorderedElementsAre("param_bytes", "grad_bytes", "optimizer_bytes",
                                   "gathered_peak_bytes", "peak_bytes", "sent_bytes_per_step"));
  EXPECT_EQ(summary["weight_hash"].get<std::string>().size(), 16U);
  EXPECT_GT(summary["wall_s"].get<double>(), summary["first_step_s"].get<double>());
  EXPECT_TRUE(exists("out/config.toml"));
  EXPECT_TRUE(exists("out/latest/manifest.json"));
  EXPECT_TRUE(exists("out/latest/tokenizer.json"));
}

TEST_F(CommandTest, DdpAndFsdpGiveTheSameBits) {
  for (const std::string ranks : {"2", "3"}) {
    succeed(train("ddp" + ranks, {"--strategy", "ddp", "--devices", ranks}));
    succeed(train("fsdp" + ranks,
                  {"--strategy", "fsdp", "--devices", ranks, "--activation-checkpointing"}));
    const auto ddp = json("ddp" + ranks + "/summary.json");
    const auto fsdp = json("fsdp" + ranks + "/summary.json");
    EXPECT_EQ(ddp["losses"], fsdp["losses"]) << ranks << " ranks";
    EXPECT_EQ(ddp["weight_hash"], fsdp["weight_hash"]) << ranks << " ranks";
    EXPECT_LT(fsdp["ranks"][0]["param_bytes"], ddp["ranks"][0]["param_bytes"]);
  }
}

TEST_F(CommandTest, RunsSingleOnOneRankAndDdpOnSeveralUnlessTold) {
  succeed(train("one", {"--max-steps", "1"}));
  EXPECT_EQ(json("one/summary.json")["strategy"], "single");
  succeed(train("two", {"--max-steps", "1", "--devices", "2"}));
  EXPECT_EQ(json("two/summary.json")["strategy"], "ddp");
}

TEST_F(CommandTest, TakesTheConfigurationThatItWrote) {
  succeed(train("out", {"--strategy", "fsdp", "--devices", "2", "--save-steps", "0"}));
  std::filesystem::copy(path("out/config.toml"), path("run.toml"));
  succeed({"train", "--config", "run.toml", "--output-dir", "again"});
  EXPECT_EQ(json("again/summary.json")["losses"], json("out/summary.json")["losses"]);
}

TEST_F(CommandTest, AResumedRunEndsWithTheSameBits) {
  const Args placement = {"--strategy", "fsdp", "--devices", "2", "--save-steps", "3"};
  succeed(train("whole", placement));
  const auto whole = json("whole/summary.json");
  for (const std::string strategy : {"fsdp", "ddp"}) {
    const std::string folder = "resumed-" + strategy;
    succeed(train(folder, {"--strategy", strategy, "--devices", "2", "--resume-from-checkpoint",
                           "whole/checkpoint-3"}));
    const auto resumed = json(folder + "/summary.json");
    EXPECT_EQ(resumed["weight_hash"], whole["weight_hash"]) << strategy;
    EXPECT_EQ(resumed["steps"], 6);
    ASSERT_EQ(resumed["losses"].size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(resumed["losses"][i], whole["losses"][i + 3]);
  }
}

TEST_F(CommandTest, ResumesFromTheNewestCheckpointOfItsFolder) {
  succeed(train("out", {"--max-steps", "2", "--lr-scheduler-type", "constant"}));
  succeed(train("out", {"--max-steps", "4", "--lr-scheduler-type", "constant",
                        "--resume-from-checkpoint", "latest"}));
  std::vector<int> steps;
  for (const auto& line : lines("out/metrics.jsonl")) steps.push_back(line["step"]);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4));
  succeed(train("straight", {"--max-steps", "4", "--lr-scheduler-type", "constant"}));
  EXPECT_EQ(json("out/summary.json")["weight_hash"], json("straight/summary.json")["weight_hash"]);

  const Ended again = run(train("out", {"--max-steps", "4", "--resume-from-checkpoint", "latest"}));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, AllOf(HasSubstr("step 4"), HasSubstr("HINT: --max-steps above 4")));
}

TEST_F(CommandTest, OneRunAtATimeWritesToAFolder) {
  Running first(
      folder_, train("out", {"--devices", "2", "--max-steps", "1000000", "--save-steps", "0"}), {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!exists("out/metrics.jsonl")) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the first run did not start";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
  }
  const Ended second = run(train("out", {}));
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("'out'"), HasSubstr("another process"), HasSubstr("HINT")));
  kill(first.pid(), SIGKILL);
  succeed(train("out", {}));
}

TEST_F(CommandTest, NothingOfAnEarlierRunPassesForThisOne) {
  succeed(train("out", {"--max-steps", "2"}));
  std::filesystem::create_directory(path("out/checkpoint-9.part"));
  const Ended ended =
      run(train("out", {"--learning-rate", "1e38", "--max-grad-norm", "0"}));  // fails at step 2
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_FALSE(exists("out/summary.json"));
  EXPECT_FALSE(exists("out/latest"));
  EXPECT_FALSE(exists("out/checkpoint-9.part"));
  EXPECT_TRUE(exists("out/checkpoint-2/manifest.json"));
}

TEST_F(CommandTest, ARunThatIsKilledAtAnyMomentGoesOnWithTheSameBits) {
  const Args args = {"--devices", "2", "--strategy", "fsdp", "--save-steps", "1"};
  Args whole = args;
  succeed(train("whole", whole));
  const auto wanted = json("whole/summary.json")["weight_hash"];
  Args resumed = args;
  resumed.insert(resumed.end(), {"--resume-from-checkpoint", "latest"});
  for (const int after_ms : {0, 3, 6, 10, 15, 25}) {
    std::filesystem::remove_all(path("out"));
    {
      Running running(folder_, train("out", args), {});
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!exists("out/latest")) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no checkpoint";
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // between two looks
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));  // somewhere in a save
      kill(running.pid(), SIGKILL);
    }
    if (exists("out/checkpoint-6") && exists("out/summary.json")) continue;  // it was faster
    const Ended ended = run(train("out", resumed));
    if (ended.exit_code == 2 && ended.err.find("is at step 6 already") != std::string::npos)
      continue;
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(json("out/summary.json")["weight_hash"], wanted) << after_ms << " ms";
  }
}

TEST_F(CommandTest, ARankThatStopsIsNamedWithWhatWasWaitedFor) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    std::filesystem::remove_all(path("out"));
    Running running(folder_,
                    train("out", {"--strategy", strategy, "--devices", "2", "--max-steps",
                                  "1000000", "--save-steps", "0", "--timeout", "2"}),
                    {});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!exists("out/metrics.jsonl") || lines("out/metrics.jsonl").empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no step was logged";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
    }
    const std::vector<pid_t> ranks = running.children();
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[1], SIGSTOP);
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = running.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_LT(took.count(), 8.0);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("waited 2.0 s for rank 1 (pid"), HasSubstr("HINT")));
  }
}

TEST_F(CommandTest, SaysThatItsOutputIsLost) {
  const Args full = {"sh", "-c", "exec \"$@\" > /dev/full", "sh"};
  const Ended ended = Running(folder_, {"plugins", "list"}, {}, full).wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("standard output"), HasSubstr("HINT")));
}

TEST_F(CommandTest, FailsWithCodeOneWhenTheLossIsNotFinite) {
  const Ended ended = run(train("out", {"--learning-rate", "1e38", "--max-grad-norm", "0"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("not finite"), HasSubstr("HINT")));
  EXPECT_FALSE(exists("out/summary.json"));
}

// ---- ranks that others have started ----

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

std::map<std::string, std::string> torchrun(int rank, int ranks, int port) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(ranks)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)}};
}

TEST_F(CommandTest, ARankOfTorchrunJoinsItsWorld) {
  const int port = free_port();
  const Args args = train("out", {"--max-steps", "2"});
  Running other(folder_, args, torchrun(1, 2, port));
  const Ended first = run(args, torchrun(0, 2, port));
  const Ended second = other.wait();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, "") << "rank 0 alone speaks";
  EXPECT_EQ(json("out/summary.json")["ranks"].size(), 2U);
  EXPECT_EQ(json("out/summary.json")["strategy"], "ddp");

  succeed(train("own", {"--max-steps", "2", "--devices", "2"}));
  EXPECT_EQ(json("out/summary.json")["losses"], json("own/summary.json")["losses"]);
}

TEST_F(CommandTest, RefusesAnotherNumberOfDevicesThanTorchrunHasStarted) {
  const Ended ended = run(train("out", {"--devices", "3"}), torchrun(0, 2, free_port()));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--devices 3"), HasSubstr("torchrun"), HasSubstr("2"),
                               HasSubstr("HINT")));
  EXPECT_FALSE(exists("out"));
}

TEST_F(CommandTest, RanksThatWereAskedForOtherThingsRefuse) {
  const int port = free_port();
  Running other(folder_, train("out", {"--max-steps", "3"}), torchrun(1, 2, port));
  const Ended first = run(train("out", {"--max-steps", "2"}), torchrun(0, 2, port));
  EXPECT_EQ(first.exit_code, 2);
  EXPECT_THAT(first.err, AllOf(HasSubstr("rank 1"), HasSubstr("max-steps = 3"),
                               HasSubstr("max-steps = 2"), HasSubstr("HINT")));
  EXPECT_EQ(other.wait().exit_code, 2);
  EXPECT_FALSE(exists("out"));
}

TEST_F(CommandTest, EndsWithinASecondWhenARankDies) {
  const std::string output = "out";
  Running running(folder_,
                  train(output, {"--strategy", "fsdp", "--devices", "2", "--max-steps", "1000000",
                                 "--save-steps", "0"}),
                  {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!exists("out/metrics.jsonl") || lines("out/metrics.jsonl").empty()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no step was logged";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
  }
  const std::vector<pid_t> ranks = running.children();
  ASSERT_EQ(ranks.size(), 2U);
  const auto begin = std::chrono::steady_clock::now();
  kill(ranks[1], SIGKILL);
  const Ended ended = running.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
  EXPECT_LT(took.count(), 1.0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1"), HasSubstr("SIGKILL")));
  for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << "a rank was left behind";
}

// ---- generate, export ----

TEST_F(CommandTest, GeneratesTheSameUnderEveryStrategy) {
  succeed(train("out", {"--max-steps", "30", "--learning-rate", "3e-3", "--devices", "2"}));
  const Args prompt = {"--prompt", "the light", "--max-new-tokens", "12"};
  const auto generate = [&](const Args& more) {
    Args args = {"generate", "--checkpoint", "out/latest"};
    args.insert(args.end(), prompt.begin(), prompt.end());
    args.insert(args.end(), more.begin(), more.end());
    return succeed(args).out;
  };
  const std::string greedy = generate({"--greedy"});
  EXPECT_THAT(greedy, ::testing::StartsWith("the light"));
  EXPECT_GT(greedy.size(), std::string("the light\n").size());
  EXPECT_EQ(generate({"--greedy", "--strategy", "fsdp", "--devices", "2"}), greedy);
  EXPECT_EQ(generate({"--greedy", "--strategy", "ddp", "--devices", "2"}), greedy);
  EXPECT_EQ(generate({"--seed", "1", "--strategy", "fsdp", "--devices", "2"}),
            generate({"--seed", "1"}));
  EXPECT_NE(generate({"--seed", "1"}), generate({"--seed", "2"}));

  succeed({"export", "--checkpoint", "out/latest", "--output-dir", "hf"});
  EXPECT_EQ(json("hf/generation_config.json")["eos_token_id"],
            json("hf/config.json")["eos_token_id"]);
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors",
                           "tokenizer.json", "vocab.json", "merges.txt"}) {
    EXPECT_TRUE(exists(std::string("hf/") + file)) << file;
  }
  Args from_export = {"generate", "--model", "hf", "--greedy"};
  from_export.insert(from_export.end(), prompt.begin(), prompt.end());
  EXPECT_EQ(succeed(from_export).out, greedy);

  // A folder is what training goes on from.
  succeed(train("more", {"--model", "hf", "--max-steps", "1"}));
  EXPECT_LT(json("more/summary.json")["final_loss"], json("out/summary.json")["losses"][0]);
}

TEST_F(CommandTest, ChecksPluginsAndLooksAtTheMachine) {
  const Ended check = succeed({"plugins", "check", "fsdp"});
  EXPECT_THAT(check.out, HasSubstr("fsdp: keeps the contract on 2 ranks"));
  const Ended list = succeed({"plugins", "list"});
  EXPECT_THAT(list.out, AllOf(HasSubstr("single"), HasSubstr("ddp"), HasSubstr("fsdp")));
  const Ended doctor = succeed({"doctor"});
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("LibTorch"), HasSubstr("cores"), HasSubstr("memory"),
                                HasSubstr("GPU"), HasSubstr("fsdp")));
}

}  // namespace
}  // namespace strata::tests
