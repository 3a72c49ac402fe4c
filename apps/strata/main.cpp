// The command `strata`.
#include <cstdio>
#include <variant>

#include "apps/strata/command.h"

namespace strata::apps {

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
