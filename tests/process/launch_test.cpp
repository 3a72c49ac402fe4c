// The launcher: what ranks find in their environment, whose output is shown, which signals arrive,
// and what the exit code says.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "strata/launch/environment.h"
#include "tests/process/launch_fixture.h"

namespace strata::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class RankCount : public LaunchTest, public ::testing::WithParamInterface<int> {};

TEST_P(RankCount, EachRankKnowsItsPlace) {
  const int ranks = GetParam();
  start({std::to_string(ranks), "tell"}, {{"OMP_NUM_THREADS", ""}});
  std::set<std::string> runs;
  std::set<int> places;
  for (int i = 0; i < 2 * ranks; ++i) {
    const Event event = next();
    if (event.what.starts_with("run,")) {
      runs.insert(event.what);
      continue;
    }
    const std::string size = std::to_string(ranks);
    const std::string threads = std::to_string(std::max(1, usable_cores() / ranks));
    EXPECT_EQ(event.what, "place," + size + "," + std::to_string(event.rank) + "," + size +
                              ",127.0.0.1," + threads + ",more," +
                              (event.rank == 0 ? "fd" : "no-fd") + ",own-group,file");
    places.insert(event.rank);
  }
  EXPECT_EQ(places.size(), static_cast<size_t>(ranks));
  EXPECT_EQ(runs.size(), 1u) << "ranks of one start share a name and a port";
  EXPECT_EQ(wait_for_end().exit_code, 0);
  EXPECT_EQ(err(), "");
}

INSTANTIATE_TEST_SUITE_P(Launch, RankCount, ::testing::Values(1, 2, 3, 4));

TEST_F(LaunchTest, LeavesTheUsersThreadCountAlone) {
  start({"2", "tell"}, {{"OMP_NUM_THREADS", "7"}});
  EXPECT_THAT(next().what, HasSubstr(",7,"));
  EXPECT_EQ(wait_for_end().exit_code, 0);
}

TEST_F(LaunchTest, ShowsTheOutputOfRankZeroOnly) {
  start({"3", "say"});
  EXPECT_EQ(wait_for_end().exit_code, 0);
  EXPECT_EQ(out(), "out of rank 0\n");
  EXPECT_EQ(err(), "err of rank 0\nno end");
}

TEST_F(LaunchTest, ShowsAllOutputWithTheRankInFrontIfAsked) {
  start({"3", "--all", "say"});
  EXPECT_EQ(wait_for_end().exit_code, 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("out of rank 0\n"), HasSubstr("[rank 1] out of rank 1\n"),
                           HasSubstr("[rank 2] out of rank 2\n")));
  EXPECT_THAT(err(), AllOf(HasSubstr("[rank 2] err of rank 2\n"), HasSubstr("[rank 2] no end\n")));
}

TEST_F(LaunchTest, LosesNoLineOfALongOutput) {
  start({"2", "--all", "flood"});
  EXPECT_EQ(wait_for_end().exit_code, 0);
  const std::string text = out();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 40000);
  EXPECT_THAT(text, HasSubstr("[rank 1] line 19999 of rank 1\n"));
}

TEST_F(LaunchTest, RankZeroKeepsTheTerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_TRUE(::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  const int inside = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  use_output(inside);
  start({"2", "tell"});
  for (int i = 0; i < 4; ++i) {
    const Event event = next();
    if (!event.what.starts_with("place")) continue;
    EXPECT_THAT(event.what, EndsWith(event.rank == 0 ? "terminal" : "file"));
  }
  EXPECT_EQ(wait_for_end().exit_code, 0);
  ::close(inside);
  ::close(terminal);
}

TEST_F(LaunchTest, OnlyRankZeroReadsTheInput) {
  start({"2", "read"});
  EXPECT_EQ(all_tell("read0", 1).begin()->first, 1);
  type("x");
  EXPECT_EQ(all_tell("read1", 1).begin()->first, 0);
  EXPECT_EQ(wait_for_end().exit_code, 0);
}

TEST_F(LaunchTest, WorksWithStandardInputAndOutputClosed) {
  close_standard_descriptors();
  start({"2", "tell"});
  for (int i = 0; i < 4; ++i) {
    const Event event = next();
    if (event.rank == 0 && event.what.starts_with("place")) {
      EXPECT_THAT(event.what, HasSubstr(",fd,")) << "the store's socket stands in for stdin";
    }
  }
  EXPECT_EQ(wait_for_end().exit_code, 0);
}

TEST_F(LaunchTest, ForwardsEachSignalOnceToEveryRank) {
  start({"2", "take-signals"});
  all_tell("waits", 2);
  for (const auto& [signal, name] :
       std::initializer_list<std::pair<int, const char*>>{{SIGUSR1, "SIGUSR1"},
                                                          {SIGUSR2, "SIGUSR2"},
                                                          {SIGHUP, "SIGHUP"},
                                                          {SIGQUIT, "SIGQUIT"},
                                                          {SIGTERM, "SIGTERM"}}) {
    send(signal);
    all_tell(name, 2);
  }
  EXPECT_EQ(wait_for_end().exit_code, 0) << "the ranks ended well after SIGTERM";
  EXPECT_EQ(err(), "");
}

TEST_F(LaunchTest, RanksThatASignalKillsEndItWithItsCode) {
  start({"2", "wait"});
  all_tell("waits", 2);
  send(SIGINT);
  EXPECT_EQ(wait_for_end().exit_code, 128 + SIGINT);
  EXPECT_EQ(err(), "strata: stopped by SIGINT\n");
}

TEST_F(LaunchTest, ASecondInterruptKillsRanksThatDoNotListen) {
  start({"2", "outlive-stops"});
  all_tell("waits", 2);
  send(SIGTERM);
  send(SIGINT);
  all_tell("SIGINT", 2);
  send(SIGINT);
  EXPECT_EQ(wait_for_end().exit_code, 128 + SIGINT);
  EXPECT_EQ(err(), "strata: killed its ranks after a second SIGINT\n");
}

TEST_F(LaunchTest, StopsAndGoesOnWithItsRanks) {
  start({"2", "take-signals"});
  all_tell("waits", 2);
  send(SIGTSTP);
  send(SIGUSR1);  // waits while all are stopped
  send(SIGCONT);
  all_tell("SIGUSR1", 2);
  send(SIGTERM);
  all_tell("SIGTERM", 2);
  EXPECT_EQ(wait_for_end().exit_code, 0);
}

TEST_F(LaunchTest, PassesOnTheExitCodeAndTheLastWordsOfARank) {
  start({"3", "exit", "2", "7"});
  EXPECT_EQ(wait_for_end().exit_code, 7);
  EXPECT_THAT(err(),
              AllOf(HasSubstr("rank 2 (pid "), HasSubstr(") ended with exit code 7, so the "),
                    HasSubstr("\n  | first words\n  | last words\n")));
}

TEST_F(LaunchTest, AMistakeThatEveryRankFindsIsToldOnce) {
  start({"4", "all-refuse"});
  EXPECT_EQ(wait_for_end().exit_code, 2);
  EXPECT_EQ(err(), "the data is empty\n");
}

TEST_F(LaunchTest, AMistakeThatOnlyOneRankFindsIsToldByTheLauncher) {
  start({"2", "exit", "1", "2"});
  EXPECT_EQ(wait_for_end().exit_code, 2);
  EXPECT_THAT(err(), AllOf(HasSubstr("rank 1 (pid "), HasSubstr("exit code 2"),
                           HasSubstr("  | last words")));
}

TEST_F(LaunchTest, AFailureOfRankZeroIsNotShownTwice) {
  start({"2", "exit", "0", "1"});
  EXPECT_EQ(wait_for_end().exit_code, 1);
  EXPECT_THAT(err(), AllOf(HasSubstr("first words\nlast words\nstrata: rank 0 (pid "),
                           HasSubstr("exit code 1"), Not(HasSubstr("|"))));
}

}  // namespace
}  // namespace strata::launch::testing
