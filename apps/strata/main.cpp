// The command `strata`.
#include <cstdio>
#include <variant>

#include "apps/strata/command.h"
#include "strata/base/log.h"

namespace strata::apps {

int exit_code_of(const Status& status, bool has_started) {
  if (status.ok()) return kExitDone;
  log::error("{}", status.message());
  if (status.code() == Code::kOutOfMemory) return kExitOutOfMemory;
  if (has_started) return kExitFailed;
  switch (status.code()) {
    case Code::kTimeout:
    case Code::kAborted:
    case Code::kPeerLost:
    case Code::kInternal: return kExitFailed;
    default: return kExitRefused;
  }
}

int run(const config::ShowText& show) {
  std::fputs(show.text.c_str(), stdout);
  return kExitDone;
}

}  // namespace strata::apps

int main(int argc, char** argv) {
  const auto command = strata::config::parse_command(argc, argv);
  if (!command.ok()) return strata::apps::exit_code_of(command.status(), false);
  return std::visit([](const auto& config) { return strata::apps::run(config); }, *command);
}
