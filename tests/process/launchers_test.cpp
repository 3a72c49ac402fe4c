// The command under launchers that are not ours: torchrun (Debian's python3-torch) and Open MPI's
// mpirun. They give the bits of our own launcher, their refusals can be read, and a killed rank
// ends the job.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/process/command_fixture.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// "-r 7:1 -t 7:1" redirects the output of a rank that is not there: the default of PyTorch 1.13
// fails under Python 3.11.
Args torchrun(const Args& rendezvous) {
  Args out = {"/usr/bin/python3", "-m", "torch.distributed.run", "--nproc_per_node=2"};
  out.insert(out.end(), rendezvous.begin(), rendezvous.end());
  out.insert(out.end(), {"-r", "7:1", "-t", "7:1", "--no_python"});
  return out;
}

Args mpirun() { return {"mpirun", "-np", "2", "--allow-run-as-root", "--oversubscribe"}; }

// Free a moment ago.
std::string free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(listener);
  return std::to_string(ntohs(address.sin_port));
}

class Launchers : public CommandTest {
 protected:
  void SetUp() override {
    for (const char* file : {"/usr/bin/mpirun", "/usr/lib/python3/dist-packages/torch"}) {
      ASSERT_TRUE(fs::exists(file)) << file << " is missing. HINT: bash tools/setup.sh --tests";
    }
  }
  Ended run_under(const Args& launcher, const Args& args) const {
    return Running(folder_, args, {}, launcher).wait();
  }
  Args two_steps(const std::string& output_dir, const Args& more = {}) const {
    Args out = train(output_dir, {"--strategy", "fsdp", "--max-steps", "2"});
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  void expect_bits_of_own_launcher(const Args& launcher) {
    succeed(two_steps("own", {"--devices", "2"}));
    const Ended ended = run_under(launcher, two_steps("theirs"));
    ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
    const auto own = json("own/summary.json");
    const auto theirs = json("theirs/summary.json");
    EXPECT_EQ(theirs["losses"], own["losses"]);
    EXPECT_EQ(theirs["weight_hash"], own["weight_hash"]);
    EXPECT_EQ(theirs["ranks"], own["ranks"]) << "bytes and traffic of each rank";
  }

  // Processes of the command that write below this test's folder; launchers are none.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> out;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::error_code error;
      const fs::path program = fs::read_symlink(entry.path() / "exe", error);
      if (error || program.filename() != "strata") continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string words{std::istreambuf_iterator<char>(file), {}};
      if (words.find(path("endless")) == std::string::npos) continue;
      out.push_back(static_cast<pid_t>(std::stol(entry.path().filename())));
    }
    return out;
  }
  template <typename Condition>
  bool comes_true(Condition condition, std::chrono::seconds deadline) const {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between two looks
    }
    return true;
  }
  void expect_a_killed_rank_ends_all(const Args& launcher) {
    Args args = train(path("endless"), {"--max-steps", "1000000"});
    Running job(folder_, args, {}, launcher);
    const auto is_training = [&] {
      return exists("endless/metrics.jsonl") && !lines("endless/metrics.jsonl").empty();
    };
    ASSERT_TRUE(comes_true(is_training, std::chrono::seconds(40)));
    const std::vector<pid_t> all = ranks();
    ASSERT_EQ(all.size(), 2U);
    kill(all.back(), SIGKILL);
    EXPECT_NE(job.wait().exit_code, 0);
    EXPECT_TRUE(comes_true([&] { return ranks().empty(); }, std::chrono::seconds(10)))
        << "a rank is left behind";
  }
};

TEST_F(Launchers, TorchrunGivesTheBitsOfOurOwnLauncher) {
  expect_bits_of_own_launcher(torchrun({"--standalone"}));
}

TEST_F(Launchers, MpirunGivesTheBitsOfOurOwnLauncher) { expect_bits_of_own_launcher(mpirun()); }

TEST_F(Launchers, ARefusalUnderMpirunSaysWhatWasAskedAndWhatIsThere) {
  const Ended ended = run_under(mpirun(), two_steps("out", {"--devices", "3"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.out << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--devices 3"), HasSubstr("Open MPI has started 2 ranks"),
                               HasSubstr("HINT")));
  EXPECT_FALSE(exists("out"));
}

TEST_F(Launchers, ARefusalUnderTorchrunNamesTheMissingFile) {
  Args args = train("out", {"--data", "nowhere.txt"});
  const Ended ended = run_under(torchrun({"--standalone"}), args);
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("nowhere.txt"), HasSubstr("HINT")));
  EXPECT_FALSE(exists("out"));
}

// Agents before PyTorch 2.1 serve a store of an older protocol at --master_port, which never
// answers.
TEST_F(Launchers, AnOlderTorchrunsStoreIsNamedWithinTheTimeout) {
  const std::string port = free_port();
  const Ended ended =
      run_under(torchrun({"--master_port", port}), two_steps("out", {"--timeout", "2"}));
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("127.0.0.1:" + port), HasSubstr("did not answer"),
                               HasSubstr("within 2 s")));
  EXPECT_FALSE(exists("out"));
}

TEST_F(Launchers, AKilledRankEndsAllUnderMpirun) { expect_a_killed_rank_ends_all(mpirun()); }

TEST_F(Launchers, AKilledRankEndsAllUnderTorchrun) {
  expect_a_killed_rank_ends_all(torchrun({"--standalone"}));
}

}  // namespace
}  // namespace strata::tests
