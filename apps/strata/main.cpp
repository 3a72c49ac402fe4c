// The command `strata`.
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <variant>

#include "apps/strata/command.h"

namespace strata::apps {

int run(const config::ShowText& show) {
  std::fputs(show.text.c_str(), stdout);
  return kExitDone;
}

}  // namespace strata::apps

namespace {

using strata::apps::exit_code_of;

int run_command(int argc, char** argv) {
  const auto command = strata::config::parse_command(argc, argv);
  if (!command.ok()) return exit_code_of(command.status(), false);
  return std::visit([](const auto& config) { return strata::apps::run(config); }, *command);
}

// Memory may run out anywhere; anything else that arrives here is a mistake of this program.
int run_without_exceptions(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const std::bad_alloc&) {
    return exit_code_of(strata::out_of_memory("strata: out of memory. HINT: a smaller model or "
                                              "batch, or a higher limit (ulimit -v)"),
                        true);
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    return exit_code_of(
        strata::internal_error(fmt::format("strata: an error that should not come this far: {}",
                                           what.substr(0, what.find('\n')))),
        true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error of that write
  const int code = run_without_exceptions(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const auto lost = strata::io_error(
      fmt::format("strata: cannot write to standard output: {}. HINT: is the disk full?",
                  std::strerror(errno)));
  return code == strata::apps::kExitDone ? exit_code_of(lost, true) : code;
}
