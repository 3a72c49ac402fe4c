#include "strata/rendezvous/place.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "strata/base/text.h"
#include "strata/launch/environment.h"
#include "strata/rendezvous/slurm.h"

namespace strata::rendezvous {
namespace {

// Reads variables and remembers what was read, for messages.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const std::string& name) const {
    std::optional<std::string> value = environment_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  std::string text_or(const std::string& name, const std::string& other) const {
    return text(name).value_or(other);
  }
  bool has_any(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (text(name)) return true;
    }
    return false;
  }

  Result<int> number(const std::string& name) const {
    const std::string value = text_or(name, "");
    int result = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || stop != value.data() + value.size() || result < 0) {
      return invalid_argument(
          fmt::format("rendezvous: {}='{}' is not a number of 0 or more", name, value));
    }
    return result;
  }

  // All of them must be set if one is.
  Status require(const std::vector<std::string>& names, const std::string& launcher) const {
    std::vector<std::string> set;
    std::vector<std::string> missing;
    for (const std::string& name : names) {
      const std::optional<std::string> value = text(name);
      (value ? set : missing).push_back(value ? name + "=" + *value : name);
    }
    if (missing.empty()) return {};
    return invalid_argument(fmt::format(
        "rendezvous: {} {} set, but {} {} not. HINT: start the ranks with {}, or unset them all",
        strata::text::join(set), set.size() == 1 ? "is" : "are", strata::text::join(missing),
        missing.size() == 1 ? "is" : "are", launcher));
  }

 private:
  const Environment& environment_;
};

// The names under which a launcher gives the four numbers.
struct Names {
  std::string rank, size, local_rank, local_size;
};
const Names kStrata = {launch::kRank, launch::kWorldSize, launch::kLocalRank,
                       launch::kLocalWorldSize};
const Names kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
const Names kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

Status check_below(int rank, int size, const std::string& rank_name, const std::string& size_name) {
  if (rank < size) return {};
  return invalid_argument(
      fmt::format("rendezvous: {}={} is not below {}={}", rank_name, rank, size_name, size));
}

// Which node, if every node has as many ranks: by blocks (0 0 1 1), or in turn (0 1 0 1).
void find_node(World& world) {
  world.node_count = std::max(1, (world.size + world.local_size - 1) / world.local_size);
  const bool is_by_blocks = world.rank % world.local_size == world.local_rank;
  world.node = is_by_blocks ? world.rank / world.local_size : world.rank % world.node_count;
}

Result<World> read_world(const Variables& variables, const Names& names) {
  World world;
  STRATA_ASSIGN_OR_RETURN(world.rank, variables.number(names.rank));
  STRATA_ASSIGN_OR_RETURN(world.size, variables.number(names.size));
  STRATA_ASSIGN_OR_RETURN(world.local_rank, variables.number(names.local_rank));
  STRATA_ASSIGN_OR_RETURN(world.local_size, variables.number(names.local_size));
  STRATA_RETURN_IF_ERROR(check_below(world.rank, world.size, names.rank, names.size));
  STRATA_RETURN_IF_ERROR(
      check_below(world.local_rank, world.local_size, names.local_rank, names.local_size));
  if (world.local_size > world.size) {
    return invalid_argument(fmt::format("rendezvous: {}={} is more than {}={}", names.local_size,
                                        world.local_size, names.size, world.size));
  }
  find_node(world);
  return world;
}

Status read_port(const Variables& variables, int* port) {
  STRATA_ASSIGN_OR_RETURN(*port, variables.number(launch::kMasterPort));
  if (*port >= 1 && *port <= 65535) return {};
  return invalid_argument(
      fmt::format("rendezvous: {}={} is not a port", launch::kMasterPort, *port));
}

// FNV-1a into the ports below those that the kernel gives out by itself.
int port_from_name(const std::string& name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return 15000 + static_cast<int>(hash % 17000);
}

// MASTER_ADDR and MASTER_PORT if both are set; else `host` and a port from the job's name.
Status find_store(const Variables& variables, const std::string& host, const std::string& job,
                  RankPlace& place) {
  place.hosts_store = place.world.rank == 0;
  place.run_id = job;
  if (variables.has_any({launch::kMasterAddr, launch::kMasterPort})) {
    STRATA_RETURN_IF_ERROR(
        variables.require({launch::kMasterAddr, launch::kMasterPort}, place.launcher));
    place.store_host = *variables.text(launch::kMasterAddr);
    return read_port(variables, &place.store_port);
  }
  if (host.empty()) {
    return invalid_argument(fmt::format(
        "rendezvous: {} ranks on {} nodes under {} need MASTER_ADDR and MASTER_PORT. HINT: mpirun "
        "-x MASTER_ADDR=HOST -x MASTER_PORT=29500, where HOST runs rank 0",
        place.world.size, place.world.node_count, place.launcher));
  }
  place.store_host = host;
  place.store_port = port_from_name(job);
  return {};
}

Result<RankPlace> strata_place(const Variables& variables) {
  RankPlace place;
  place.launcher = "strata";
  STRATA_RETURN_IF_ERROR(
      variables.require({kStrata.rank, kStrata.size, kStrata.local_rank, kStrata.local_size,
                         launch::kRunId, launch::kMasterAddr, launch::kMasterPort},
                        "strata train --devices N"));
  STRATA_ASSIGN_OR_RETURN(place.world, read_world(variables, kStrata));
  STRATA_RETURN_IF_ERROR(find_store(variables, "", *variables.text(launch::kRunId), place));
  if (place.hosts_store && variables.text(launch::kStoreFd)) {
    STRATA_ASSIGN_OR_RETURN(place.store_fd, variables.number(launch::kStoreFd));
  }
  return place;
}

bool is_this_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<RankPlace> torchrun_place(const Variables& variables) {
  RankPlace place;
  place.launcher = "torchrun";
  STRATA_RETURN_IF_ERROR(variables.require(
      {kTorchrun.rank, kTorchrun.size, launch::kMasterAddr, launch::kMasterPort}, "torchrun"));
  Names names = kTorchrun;
  if (!variables.has_any({names.local_rank, names.local_size}) &&
      is_this_host(*variables.text(launch::kMasterAddr))) {
    names.local_rank = names.rank;  // set by hand, all on this host
    names.local_size = names.size;
  }
  STRATA_RETURN_IF_ERROR(
      variables.require({names.rank, names.size, names.local_rank, names.local_size}, "torchrun"));
  STRATA_ASSIGN_OR_RETURN(place.world, read_world(variables, names));
  if (variables.text("GROUP_RANK")) {
    STRATA_ASSIGN_OR_RETURN(place.world.node, variables.number("GROUP_RANK"));
  }
  if (variables.text("GROUP_WORLD_SIZE")) {
    STRATA_ASSIGN_OR_RETURN(place.world.node_count, variables.number("GROUP_WORLD_SIZE"));
    STRATA_RETURN_IF_ERROR(
        check_below(place.world.node, place.world.node_count, "GROUP_RANK", "GROUP_WORLD_SIZE"));
  }
  const std::string run = variables.text_or("TORCHELASTIC_RUN_ID", "torchrun") + "." +
                          variables.text_or("TORCHELASTIC_RESTART_COUNT", "0");
  STRATA_RETURN_IF_ERROR(find_store(variables, "", run, place));
  if (variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "False") == "True") {
    place.hosts_store = false;
  }
  return place;
}

Result<RankPlace> open_mpi_place(const Variables& variables) {
  RankPlace place;
  place.launcher = "Open MPI";
  STRATA_RETURN_IF_ERROR(variables.require(
      {kOpenMpi.rank, kOpenMpi.size, kOpenMpi.local_rank, kOpenMpi.local_size}, "mpirun"));
  STRATA_ASSIGN_OR_RETURN(place.world, read_world(variables, kOpenMpi));
  const std::string job =
      variables.text_or("PMIX_NAMESPACE", variables.text_or("OMPI_MCA_ess_base_jobid", "mpirun"));
  const bool is_one_node = place.world.local_size == place.world.size;
  STRATA_RETURN_IF_ERROR(find_store(variables, is_one_node ? "127.0.0.1" : "", job, place));
  return place;
}

// The name that is set: a step's own, or the job's.
std::string step_or_job(const Variables& variables, const char* step, const char* job) {
  return variables.text(step) ? step : job;
}

Result<RankPlace> slurm_place(const Variables& variables) {
  RankPlace place;
  place.launcher = "SLURM";
  World& world = place.world;
  const std::string size = step_or_job(variables, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  STRATA_RETURN_IF_ERROR(variables.require({"SLURM_PROCID", size, "SLURM_LOCALID"}, "srun"));
  STRATA_ASSIGN_OR_RETURN(world.rank, variables.number("SLURM_PROCID"));
  STRATA_ASSIGN_OR_RETURN(world.size, variables.number(size));
  STRATA_ASSIGN_OR_RETURN(world.local_rank, variables.number("SLURM_LOCALID"));
  STRATA_RETURN_IF_ERROR(check_below(world.rank, world.size, "SLURM_PROCID", size));
  const std::string nodes = step_or_job(variables, "SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  if (variables.text(nodes)) {
    STRATA_ASSIGN_OR_RETURN(world.node_count, variables.number(nodes));
  }
  if (variables.text("SLURM_NODEID")) {
    STRATA_ASSIGN_OR_RETURN(world.node, variables.number("SLURM_NODEID"));
  }
  const std::string tasks =
      step_or_job(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  world.local_size = tasks_on_node(variables.text_or(tasks, ""), world.node)
                         .value_or(world.size / std::max(1, world.node_count));
  STRATA_RETURN_IF_ERROR(check_below(world.local_rank, world.local_size, "SLURM_LOCALID", tasks));
  const std::string hosts = step_or_job(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  const std::string host =
      world.node_count == 1 ? "127.0.0.1" : first_host(variables.text_or(hosts, ""));
  const std::string job =
      variables.text_or("SLURM_JOB_ID", variables.text_or("SLURM_JOBID", "slurm")) + "." +
      variables.text_or("SLURM_STEP_ID", "0");
  STRATA_RETURN_IF_ERROR(find_store(variables, host, job, place));
  return place;
}

// A batch script has SLURM_PROCID=0 and the job's number of tasks, but is no task of a step.
bool is_slurm_task(const Variables& variables) {
  if (!variables.text("SLURM_PROCID")) return false;
  if (variables.text("SLURM_STEP_NUM_TASKS")) {
    return *variables.text("SLURM_STEP_NUM_TASKS") != "1";
  }
  return variables.text_or("ENVIRONMENT", "") != "BATCH" && variables.text("SLURM_NTASKS") &&
         *variables.text("SLURM_NTASKS") != "1";
}

// An inner and an outer launcher that do not know of each other must say the same.
Status check_agreement(const RankPlace& inner, const RankPlace& outer) {
  if (inner.world.rank == outer.world.rank && inner.world.size == outer.world.size) return {};
  return invalid_argument(fmt::format(
      "rendezvous: by the variables of {} this is rank {} of {}, by those of {} rank {} of {}. "
      "HINT: unset those that are left over (env | grep -E 'RANK|WORLD_SIZE|PROCID')",
      inner.launcher, inner.world.rank, inner.world.size, outer.launcher, outer.world.rank,
      outer.world.size));
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Result<std::optional<RankPlace>> place_from_environment(const Environment& environment) {
  const Variables variables(environment);
  const bool has_torchrun = variables.has_any(
      {kTorchrun.rank, kTorchrun.size, kTorchrun.local_rank, kTorchrun.local_size});
  std::vector<RankPlace> places;  // innermost first
  if (variables.has_any({kStrata.rank, kStrata.size, kStrata.local_rank})) {
    STRATA_ASSIGN_OR_RETURN(places.emplace_back(), strata_place(variables));
    if (!has_torchrun) return std::optional(places[0]);
  }
  if (has_torchrun) {
    STRATA_ASSIGN_OR_RETURN(places.emplace_back(), torchrun_place(variables));
    // torchrun itself may run as a task of mpirun or srun.
    const bool knows_no_outer = places.size() == 1 && !variables.text("TORCHELASTIC_RUN_ID");
    if (knows_no_outer && variables.text(kOpenMpi.rank)) {
      STRATA_ASSIGN_OR_RETURN(places.emplace_back(), open_mpi_place(variables));
    } else if (knows_no_outer && is_slurm_task(variables)) {
      STRATA_ASSIGN_OR_RETURN(places.emplace_back(), slurm_place(variables));
    }
  } else if (variables.has_any({kOpenMpi.rank, kOpenMpi.size})) {
    STRATA_ASSIGN_OR_RETURN(places.emplace_back(), open_mpi_place(variables));
  } else if (is_slurm_task(variables)) {
    STRATA_ASSIGN_OR_RETURN(places.emplace_back(), slurm_place(variables));
  }
  if (places.empty()) return std::optional<RankPlace>();
  if (places.size() > 1) STRATA_RETURN_IF_ERROR(check_agreement(places[0], places[1]));
  return std::optional(places[0]);
}

Result<std::optional<World>> world_from_environment(const Environment& environment) {
  STRATA_ASSIGN_OR_RETURN(const std::optional<RankPlace> place,
                          place_from_environment(environment));
  return place ? std::optional(place->world) : std::nullopt;
}

Status check_request(const RankPlace& place, std::optional<int> devices, int num_nodes) {
  if (devices && *devices != place.world.local_size) {
    return invalid_argument(fmt::format(
        "--devices {}: {} has started {} ranks on this node. HINT: leave --devices away", *devices,
        place.launcher, place.world.local_size));
  }
  if (num_nodes > 1 && num_nodes != place.world.node_count) {
    return invalid_argument(fmt::format(
        "--num-nodes {}: {} has started ranks on {} nodes. HINT: leave --num-nodes away", num_nodes,
        place.launcher, place.world.node_count));
  }
  return {};
}

}  // namespace strata::rendezvous
