#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "strata/base/text.h"
#include "strata/rendezvous/tcp_store.h"

namespace strata::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Over the time that rank 0 waits, for its answer to arrive.
constexpr milliseconds kAnswerTime{5000};

std::string key_of(const std::string& name, const std::string& step, int rank) {
  return fmt::format("barrier/{}/{}/{}", name, step, rank);
}

// The ranks that have not set their key of this step by then.
Result<std::vector<std::string>> missing_ranks(Store& store, const World& world,
                                               const std::string& name, const std::string& step,
                                               Clock::time_point deadline) {
  std::vector<std::string> missing;
  for (int rank = 1; rank < world.size; ++rank) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto came = store.get(key_of(name, step, rank), std::max(left, milliseconds(0)));
    if (!came.ok() && came.status().code() != Code::kTimeout) return came.status();
    if (!came.ok()) missing.push_back(std::to_string(rank));
  }
  return missing;
}

Status wait_as_rank_0(Store& store, const World& world, const std::string& name,
                      milliseconds timeout) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<std::string> missing,
                          missing_ranks(store, world, name, "came", Clock::now() + timeout));
  std::string verdict;
  if (!missing.empty()) {
    verdict = fmt::format("rendezvous: '{}': {} {} of {} did not come within {:g} s", name,
                          missing.size() == 1 ? "rank" : "ranks", text::join(missing), world.size,
                          static_cast<double>(timeout.count()) / 1000);
  }
  STRATA_RETURN_IF_ERROR(store.set(key_of(name, "verdict", 0), verdict));
  if (!missing.empty()) return strata::timeout(verdict);
  // Rank 0 may end after this, and the store with it: first everybody must have read the verdict.
  STRATA_ASSIGN_OR_RETURN(const std::vector<std::string> unread,
                          missing_ranks(store, world, name, "read", Clock::now() + kAnswerTime));
  if (unread.empty()) return {};
  return strata::timeout(
      fmt::format("rendezvous: '{}': ranks {} came, but did not go on", name, text::join(unread)));
}

}  // namespace

Status wait_for_all_ranks(Store& store, const World& world, const std::string& name,
                          milliseconds timeout) {
  if (world.size == 1) return {};
  if (world.rank == 0) return wait_as_rank_0(store, world, name, timeout);
  STRATA_RETURN_IF_ERROR(store.set(key_of(name, "came", world.rank), "1"));
  const auto verdict = store.get(key_of(name, "verdict", 0), timeout + kAnswerTime);
  if (!verdict.ok()) {
    return verdict.status().with_context(
        fmt::format("rendezvous: '{}': no answer of rank 0", name));
  }
  if (!verdict->empty()) return strata::timeout(*verdict);
  return store.set(key_of(name, "read", world.rank), "1");
}

}  // namespace strata::rendezvous
