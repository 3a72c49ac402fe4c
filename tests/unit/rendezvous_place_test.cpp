// Which rank this process is, by the variables of launchers.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "strata/rendezvous/place.h"
#include "strata/rendezvous/slurm.h"

namespace strata::rendezvous {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

Result<std::optional<RankPlace>> find(const Variables& variables) {
  return place_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

RankPlace place(const Variables& variables) {
  const auto found = find(variables);
  EXPECT_TRUE(found.ok()) << found.status().message();
  EXPECT_TRUE(found.ok() && found->has_value()) << "no launcher was recognised";
  return found.ok() && *found ? **found : RankPlace{};
}

std::string refused(const Variables& variables) {
  const auto found = find(variables);
  EXPECT_FALSE(found.ok()) << "was taken";
  return found.ok() ? "" : found.status().message();
}

const Variables kStrata = {{"STRATA_RANK", "0"},         {"STRATA_WORLD_SIZE", "2"},
                           {"STRATA_LOCAL_RANK", "0"},   {"STRATA_LOCAL_WORLD_SIZE", "2"},
                           {"STRATA_RUN_ID", "ab"},      {"STRATA_STORE_FD", "7"},
                           {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "4000"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"GROUP_RANK", "1"},
                             {"GROUP_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "n0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "job"},
                             {"TORCHELASTIC_RESTART_COUNT", "1"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "1234@1"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "6"},
                          {"SLURM_NTASKS", "9"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4,2"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}};

TEST(RankPlace, IsNoneWithoutALauncher) {
  const auto found = find({{"HOME", "/"}, {"MASTER_ADDR", "x"}});
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
}

TEST(RankPlace, IsReadFromOurOwnLauncher) {
  const RankPlace zero = place(kStrata);
  EXPECT_EQ(zero.launcher, "strata");
  EXPECT_EQ(zero.world.size, 2);
  EXPECT_EQ(zero.store_fd, 7);
  EXPECT_EQ(zero.store_port, 4000);
  EXPECT_EQ(zero.run_id, "ab");
  EXPECT_TRUE(zero.hosts_store);
  const RankPlace one =
      place(kStrata + Variables{{"STRATA_RANK", "1"}, {"STRATA_LOCAL_RANK", "1"}});
  EXPECT_EQ(one.world.local_rank, 1);
  EXPECT_FALSE(one.hosts_store);
  EXPECT_EQ(one.store_fd, -1);
}

TEST(RankPlace, IsReadFromTorchrunWhoseAgentHasTheStore) {
  const RankPlace p = place(kTorchrun);
  EXPECT_EQ(p.launcher, "torchrun");
  EXPECT_EQ(p.world.rank, 3);
  EXPECT_EQ(p.world.local_rank, 1);
  EXPECT_EQ(p.world.local_size, 2);
  EXPECT_EQ(p.world.node, 1);
  EXPECT_EQ(p.world.node_count, 2);
  EXPECT_EQ(p.store_host, "n0");
  EXPECT_EQ(p.run_id, "job.1");
  const Variables zero = {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"GROUP_RANK", "0"}};
  EXPECT_FALSE(place(kTorchrun + zero).hosts_store);
  EXPECT_TRUE(
      place(kTorchrun + zero + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).hosts_store);
}

TEST(RankPlace, MayBeSetByHandOnOneHost) {
  const Variables hand = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(place(hand).world.local_rank, 1);
  EXPECT_EQ(place(hand).world.local_size, 2);
  EXPECT_THAT(refused(hand + Variables{{"MASTER_ADDR", "far"}}),
              HasSubstr("LOCAL_RANK, LOCAL_WORLD_SIZE are not"));
}

TEST(RankPlace, IsReadFromOpenMpi) {
  const RankPlace p = place(kOpenMpi);
  EXPECT_EQ(p.launcher, "Open MPI");
  EXPECT_EQ(p.world.rank, 1);
  EXPECT_EQ(p.store_host, "127.0.0.1");
  EXPECT_GE(p.store_port, 15000);
  EXPECT_LT(p.store_port, 32768);
  EXPECT_NE(p.store_port, place(kOpenMpi + Variables{{"PMIX_NAMESPACE", "1235@1"}}).store_port);
  const Variables two_nodes = {{"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_THAT(refused(kOpenMpi + two_nodes), HasSubstr("need MASTER_ADDR and MASTER_PORT"));
  const RankPlace far =
      place(kOpenMpi + two_nodes + Variables{{"MASTER_ADDR", "h"}, {"MASTER_PORT", "9"}});
  EXPECT_EQ(far.world.node_count, 2);
  EXPECT_EQ(far.store_host, "h");
}

TEST(RankPlace, FindsTheNodeWhenRanksAreDealtInTurn) {
  const Variables in_turn = {{"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_RANK", "3"},
                             {"MASTER_ADDR", "h"},
                             {"MASTER_PORT", "9"}};
  EXPECT_EQ(place(kOpenMpi + in_turn).world.node, 1);
  EXPECT_EQ(place(kOpenMpi + in_turn + Variables{{"OMPI_COMM_WORLD_RANK", "2"}}).world.node, 0);
}

TEST(RankPlace, IsReadFromASlurmStep) {
  const RankPlace p = place(kSlurm);
  EXPECT_EQ(p.launcher, "SLURM");
  EXPECT_EQ(p.world.rank, 5);
  EXPECT_EQ(p.world.size, 6);
  EXPECT_EQ(p.world.local_size, 2);
  EXPECT_EQ(p.world.node, 1);
  EXPECT_EQ(p.world.node_count, 2);
  EXPECT_EQ(p.store_host, "gpu07");
}

TEST(RankPlace, IsNoneInASlurmBatchScriptOrShell) {
  const Variables batch = {{"SLURM_PROCID", "0"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "0"},
                           {"ENVIRONMENT", "BATCH"}};
  EXPECT_FALSE(find(batch)->has_value());
  EXPECT_FALSE(find({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})->has_value());
  EXPECT_FALSE(find({{"SLURM_NTASKS", "8"}})->has_value());
}

TEST(RankPlace, RefusesContradictionsWithNamesAndValues) {
  const std::pair<Variables, std::string> cases[] = {
      {kStrata + Variables{{"STRATA_RANK", "2"}}, "STRATA_RANK=2 is not below STRATA_WORLD_SIZE=2"},
      {kTorchrun + Variables{{"RANK", "4"}}, "RANK=4 is not below WORLD_SIZE=4"},
      {kTorchrun + Variables{{"LOCAL_RANK", "2"}}, "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"},
      {kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "5"}},
       "LOCAL_WORLD_SIZE=5 is more than WORLD_SIZE"},
      {kTorchrun + Variables{{"RANK", "x"}}, "RANK='x' is not a number"},
      {kTorchrun + Variables{{"RANK", "-1"}}, "RANK='-1' is not a number of 0 or more"},
      {kTorchrun + Variables{{"MASTER_PORT", "70000"}}, "MASTER_PORT=70000 is not a port"},
      {kTorchrun + Variables{{"WORLD_SIZE", ""}},
       "RANK=3, MASTER_ADDR=n0, MASTER_PORT=29500 are set, but WORLD_SIZE is not"},
      {kTorchrun + Variables{{"GROUP_RANK", "2"}}, "GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"},
      {{{"LOCAL_RANK", "0"}}, "HINT: start the ranks with torchrun"},
      {kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", "2"}}, "is not below OMPI_COMM_WORLD_SIZE=2"},
      {kSlurm + Variables{{"SLURM_LOCALID", "3"}},
       "SLURM_LOCALID=3 is not below SLURM_STEP_TASKS_PER_NODE=2"},
  };
  for (const auto& [variables, message] : cases)
    EXPECT_THAT(refused(variables), HasSubstr(message));
}

TEST(RankPlace, RefusesTwoLaunchersThatDisagree) {
  const Variables hand = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}};
  EXPECT_THAT(refused(kOpenMpi + hand),
              AllOf(HasSubstr("torchrun this is rank 0 of 2"), HasSubstr("Open MPI rank 1 of 2")));
  EXPECT_THAT(refused(kStrata + hand + Variables{{"RANK", "1"}}),
              HasSubstr("strata this is rank 0"));
  EXPECT_EQ(place(kOpenMpi + hand + Variables{{"RANK", "1"}}).launcher, "torchrun");
}

TEST(RankPlace, TorchrunInsideASlurmStepIsTheInnerOne) {
  EXPECT_EQ(place(kTorchrun + kSlurm).launcher, "torchrun");
}

TEST(RankPlace, IsComparedWithWhatTheUserAskedFor) {
  const RankPlace p = place(kTorchrun);
  EXPECT_TRUE(check_request(p, std::nullopt, 1).ok());
  EXPECT_TRUE(check_request(p, 2, 2).ok());
  EXPECT_THAT(check_request(p, 4, 1).message(),
              HasSubstr("--devices 4: torchrun has started 2 ranks on this node"));
  EXPECT_THAT(check_request(p, 2, 3).message(), HasSubstr("--num-nodes 3"));
}

TEST(SlurmLists, AreReadInTheirShortForm) {
  EXPECT_EQ(first_host("node[03-07,9],other"), "node03");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("rack1[5]-ib,x"), "rack15-ib");
  EXPECT_EQ(first_host("alone"), "alone");
  EXPECT_EQ(first_host("broken["), "broken");
  EXPECT_EQ(tasks_on_node("4(x2),3", 1), 4);
  EXPECT_EQ(tasks_on_node("4(x2),3", 2), 3);
  EXPECT_EQ(tasks_on_node("4(x2),3", 3), std::nullopt);
  EXPECT_EQ(tasks_on_node("four", 0), std::nullopt);
}

}  // namespace
}  // namespace strata::rendezvous
