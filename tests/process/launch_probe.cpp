// The program whose ranks the launcher's tests start:  launch_probe RANKS [--all] ACT [ARGUMENT...]
//
// Without STRATA_RANK it is the launcher; with it, a rank that acts. Ranks tell the test what they
// do by lines "WHAT RANK PID" into the pipe PROBE_FD. The end of that pipe is the end of every
// process that has it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "strata/launch/environment.h"
#include "strata/launch/launcher.h"

namespace {

using strata::launch::launch_ranks;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
const std::string kRank = variable(strata::launch::kRank);

void tell(const std::string& what) {
  const std::string line = what + " " + kRank + " " + std::to_string(::getpid()) + "\n";
  const int fd = std::atoi(variable("PROBE_FD").c_str());
  if (::write(fd, line.data(), line.size()) < 0) ::_exit(99);
}

[[noreturn]] void wait_for_ever() {
  tell("waits");
  while (true) ::pause();
}

void tell_signal(int signal) {
  tell(std::string("SIG") + ::sigabbrev_np(signal));
  if (signal == SIGTERM || signal == SIGINT) ::_exit(0);
}

void handle(int signal) {
  struct sigaction action {};
  action.sa_handler = tell_signal;
  ::sigaction(signal, &action, nullptr);
}

// Everything of the environment that a launcher sets, as one word.
std::string place() {
  std::ostringstream out;
  out << "place";
  for (const char* name :
       {strata::launch::kWorldSize, strata::launch::kLocalRank, strata::launch::kLocalWorldSize,
        strata::launch::kMasterAddr, "OMP_NUM_THREADS", "PROBE_EXTRA"}) {
    out << "," << variable(name);
  }
  const std::string store = variable(strata::launch::kStoreFd);
  out << "," << (store.empty() ? "no-fd" : std::atoi(store.c_str()) > 2 ? "fd" : "standard-fd");
  out << "," << (::getpgrp() == ::getpid() ? "own-group" : "same-group");
  out << "," << (::isatty(STDOUT_FILENO) ? "terminal" : "file");
  return out.str();
}

int act(const std::vector<std::string>& words) {
  const std::string& what = words[0];
  const bool is_mine = words.size() > 1 && words[1] == kRank;
  if (what == "tell") {
    tell(place());
    tell("run," + variable(strata::launch::kRunId) + "," + variable(strata::launch::kMasterPort));
    return 0;
  }
  if (what == "say") {
    std::printf("out of rank %s\n", kRank.c_str());
    std::fflush(stdout);
    std::fprintf(stderr, "err of rank %s\nno end", kRank.c_str());
    return 0;
  }
  if (what == "flood") {  // much more than a pipe holds
    for (int i = 0; i < 20000; ++i) std::printf("line %d of rank %s\n", i, kRank.c_str());
    return 0;
  }
  if (what == "read") {
    char byte = 0;
    tell("read" + std::to_string(::read(STDIN_FILENO, &byte, 1)));
    return 0;
  }
  if (what == "all-refuse") {  // every rank finds the same mistake
    std::fprintf(stderr, "the data is empty\n");
    return 2;
  }
  if (what == "exit") {  // exit RANK CODE
    if (!is_mine) wait_for_ever();
    std::fprintf(stderr, "first words\nlast words\n");
    return std::atoi(words[2].c_str());
  }
  if (what == "die") {  // die RANK SIGNAL
    if (!is_mine) wait_for_ever();
    ::raise(std::atoi(words[2].c_str()));
  }
  if (what == "stubborn") {  // rank 1 takes no SIGTERM, rank 0 fails
    if (kRank != "0") {
      ::signal(SIGTERM, SIG_IGN);
      wait_for_ever();
    }
    char byte = 0;  // the test lets it go on
    if (::read(STDIN_FILENO, &byte, 1) < 0) return 98;
    return 3;
  }
  if (what == "take-signals") {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) handle(signal);
    wait_for_ever();
  }
  if (what == "outlive-stops") {
    ::signal(SIGTERM, SIG_IGN);
    struct sigaction action {};
    action.sa_handler = [](int) { tell("SIGINT"); };
    ::sigaction(SIGINT, &action, nullptr);
    wait_for_ever();
  }
  wait_for_ever();
}

int run_launcher(const std::vector<std::string>& args) {
  strata::launch::LaunchPlan plan;
  plan.ranks = std::atoi(args[0].c_str());
  plan.all_ranks_output = args[1] == "--all";
  plan.environment = {{"PROBE_EXTRA", "more"}};
  const auto outcome = launch_ranks(plan);
  if (!outcome.ok()) {
    std::fprintf(stderr, "%s\n", outcome.status().message().c_str());
    return 97;
  }
  if (!outcome->message.empty()) std::fprintf(stderr, "%s\n", outcome->message.c_str());
  return outcome->exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (kRank.empty()) return run_launcher(args);
  const size_t first = args[1] == "--all" ? 2 : 1;
  return act({args.begin() + static_cast<ptrdiff_t>(first), args.end()});
}
