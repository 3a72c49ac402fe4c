#include "strata/launch/environment.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "strata/launch/command_start.h"

namespace strata::launch {
namespace {

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Field 22 of /proc/self/stat, counted behind the command's name, which may have blanks.
int64_t process_start_ns() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return now_ns();
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  const int64_t ticks = std::strtoll(field.c_str(), nullptr, 10);
  return ticks * (1'000'000'000 / ::sysconf(_SC_CLK_TCK));
}

// "max 100000" or "150000 100000" in cpu.max: time per period.
double control_group_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period && period > 0 ? quota / period : 0;
}

}  // namespace

int64_t command_start_ns() {
  const char* given = std::getenv(kStartNs);
  const int64_t start = given == nullptr ? 0 : std::strtoll(given, nullptr, 10);
  return start > 0 ? start : process_start_ns();
}

double seconds_since_command_start() {
  return std::max(0.0, static_cast<double>(now_ns() - command_start_ns()) * 1e-9);
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0
                  ? CPU_COUNT(&set)
                  : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const double limit = control_group_cores();
  if (limit > 0) cores = std::min(cores, static_cast<int>(limit + 0.5));
  return std::max(cores, 1);
}

}  // namespace strata::launch
