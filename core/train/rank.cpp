#include "strata/train/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "strata/base/log.h"
#include "strata/base/text.h"
#include "strata/plugin/capabilities.h"

namespace strata::train {
namespace {

class ThreadErrorSink final : public plugin::ErrorSink {
 public:
  std::string take() override { return device::take_error().text; }
};

// What a rank finds when another has failed.
bool is_consequence(Code code) {
  return code == Code::kAborted || code == Code::kPeerLost || code == Code::kTimeout;
}

// Flags that may differ from rank to rank: where things are, and what is shown.
bool may_differ(const std::string& line) {
  static const std::set<std::string> kMayDiffer = {
      "model",       "data",        "tokenizer", "output-dir",      "resume-from-checkpoint",
      "plugin-path", "no-progress", "devices",   "all-ranks-output"};
  return line.empty() || line[0] == '#' || kMayDiffer.contains(line.substr(0, line.find(" = ")));
}

}  // namespace

Status check_same_request(const Rank& rank, const std::string& request, double timeout_s) {
  if (rank.store == nullptr || rank.world.size == 1) return {};
  if (rank.is_first()) return rank.store->set("request", request);
  const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_s * 1000));
  STRATA_ASSIGN_OR_RETURN(const std::string wanted, rank.store->get("request", timeout));
  std::vector<std::string> differing[2];  // here, on rank 0
  const std::vector<std::string> lines[2] = {text::split(request, '\n'), text::split(wanted, '\n')};
  for (int side = 0; side < 2; ++side) {
    for (const std::string& line : lines[side]) {
      const auto& other = lines[1 - side];
      if (!may_differ(line) && std::find(other.begin(), other.end(), line) == other.end()) {
        differing[side].push_back(line);
      }
    }
  }
  if (differing[0].empty() && differing[1].empty()) return {};
  return invalid_argument(fmt::format(
      "train: this rank was asked for [{}], rank 0 for [{}]. HINT: start every rank with the same "
      "flags, and give it the same text",
      text::join(differing[0]), text::join(differing[1])));
}

plugin::HostOffer host_offer() {
  static ThreadErrorSink sink;
  return {&device::Host::table, &sink};
}

std::string library_folder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "lib" / "strata").string();
}

Result<plugin::ResolvedStrategy> resolve_strategy(const config::PlacementConfig& placement,
                                                  const plugin::StrategyNeeds& needs) {
  STRATA_ASSIGN_OR_RETURN(const plugin::StrategyRequest request,
                          plugin::parse_strategy_request(placement.strategy, placement.set));
  plugin::PluginRegistry registry(host_offer(), plugin::search_places(placement.plugin_path));
  STRATA_ASSIGN_OR_RETURN(plugin::ResolvedStrategy strategy, registry.find(request));
  STRATA_ASSIGN_OR_RETURN(const strata_capabilities_t capabilities,
                          strategy.library->describe(strategy.name));
  STRATA_RETURN_IF_ERROR(plugin::check_capabilities(strategy.name, capabilities, needs));
  return strategy;
}

Result<std::unique_ptr<device::Host>> make_host(const Rank& rank,
                                                const config::PlacementConfig& placement) {
  device::HostConfig config;
  config.world = rank.world;
  config.store = rank.store;
  config.store_prefix = "host";
  config.timeout = std::chrono::milliseconds(static_cast<int64_t>(placement.timeout_s * 1000));
  if (rank.world.size > 1) config.ccl_library = library_folder() + "/libstrata_ccl_cpu.so";
  return device::Host::create(std::move(config));
}

Status agree(const Rank& rank, const std::string& what, const Status& mine, double timeout_s) {
  if (rank.store == nullptr || rank.world.size == 1) return mine;
  const std::string key = "agree/" + what + "/";
  const std::string code = std::to_string(static_cast<int>(mine.code()));
  STRATA_RETURN_IF_ERROR(
      rank.store->set(key + std::to_string(rank.world.rank), code + " " + mine.message()));
  const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_s * 1000));
  Status first = mine;
  for (int other = 0; other < rank.world.size; ++other) {
    if (other == rank.world.rank) continue;
    auto said = rank.store->get(key + std::to_string(other), timeout);
    if (!said.ok()) {
      return said.status().with_context(fmt::format("waiting for rank {} at '{}'", other, what));
    }
    const auto other_code = static_cast<Code>(std::stoi(*said));
    if (other_code != Code::kOk &&
        (first.ok() || (is_consequence(first.code()) && !is_consequence(other_code)))) {
      first =
          Status(other_code, fmt::format("rank {}: {}", other, said->substr(said->find(' ') + 1)));
    }
  }
  return first;
}

}  // namespace strata::train
