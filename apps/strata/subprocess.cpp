#include "apps/strata/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "strata/device/process_stats.h"

namespace strata::apps {

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

Result<ProcessResult> run_process(const std::vector<std::string>& args, bool is_quiet,
                                  const std::vector<std::string>& environment) {
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& pair : environment) envp.push_back(const_cast<char*>(pair.c_str()));
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    envp.push_back(*inherited);  // the first of a name wins
  }
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (is_quiet) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  const double begin = device::monotonic_seconds();
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return io_error(fmt::format("cannot start '{}': {}", args[0], strerror(failed)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ProcessResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.wall_s = device::monotonic_seconds() - begin;
  return result;
}

}  // namespace strata::apps
