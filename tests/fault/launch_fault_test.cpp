// Processes that die or hang: a dead rank ends all within a second, a dead launcher leaves nobody.
#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tests/process/launch_fixture.h"

namespace strata::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(LaunchTest, AKilledRankEndsAllWithinASecondAndIsNamed) {
  for (const int victim : {0, 1, 2}) {
    start({"3", "wait"});
    const auto pids = all_tell("waits", 3);
    ASSERT_EQ(pids.size(), 3u);
    mark();
    ASSERT_EQ(::kill(pids.at(victim), SIGKILL), 0);
    const Ended ended = wait_for_end();
    EXPECT_LT(ended.seconds, 1.0);
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
    EXPECT_THAT(err(), HasSubstr("strata: rank " + std::to_string(victim) + " (pid " +
                                 std::to_string(pids.at(victim)) + ") was killed by SIGKILL"));
  }
}

TEST_F(LaunchTest, ACrashedRankIsNamedWithItsSignal) {
  start({"2", "die", "1", std::to_string(SIGSEGV)});
  EXPECT_EQ(wait_for_end().exit_code, 128 + SIGSEGV);
  EXPECT_THAT(err(), AllOf(HasSubstr("rank 1 (pid "), HasSubstr("was killed by SIGSEGV")));
}

TEST_F(LaunchTest, AKilledLauncherLeavesNoRankBehind) {
  start({"4", "wait"});
  all_tell("waits", 4);
  send(SIGKILL);
  EXPECT_TRUE(everybody_is_gone_within(1));
  EXPECT_EQ(wait_for_end().exit_code, 128 + SIGKILL);
}

TEST_F(LaunchTest, ARankThatIgnoresSigtermIsKilledInTime) {
  start({"2", "stubborn"});
  all_tell("waits", 1);
  mark();
  type("x");
  const Ended ended = wait_for_end();
  EXPECT_LT(ended.seconds, 1.0);
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(err(), AllOf(HasSubstr("rank 0 (pid "), HasSubstr("ended with exit code 3"),
                           Not(HasSubstr("rank 1"))));
}

TEST_F(LaunchTest, StoppedRanksEndWithTheirLauncher) {
  start({"2", "wait"});
  const auto pids = all_tell("waits", 2);
  ASSERT_EQ(pids.size(), 2u);
  for (const auto& [rank, pid] : pids) ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  mark();
  send(SIGTERM);
  const Ended ended = wait_for_end();
  EXPECT_LT(ended.seconds, 1.0);
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM);
}

TEST_F(LaunchTest, AStoppedRankIsToldToEndToo) {
  start({"2", "take-signals"});
  const auto pids = all_tell("waits", 2);
  ASSERT_EQ(pids.size(), 2u);
  ASSERT_EQ(::kill(pids.at(0), SIGSTOP), 0);
  mark();
  ASSERT_EQ(::kill(pids.at(1), SIGKILL), 0);
  EXPECT_EQ(all_tell("SIGTERM", 1).begin()->first, 0) << "it goes on and takes the signal";
  const Ended ended = wait_for_end();
  EXPECT_LT(ended.seconds, 1.0);
  EXPECT_THAT(err(), HasSubstr("rank 1 (pid"));
}

}  // namespace
}  // namespace strata::launch::testing
