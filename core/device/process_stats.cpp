#include "strata/device/process_stats.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <string>

namespace strata::device {
namespace {

// The value of a line "Name:   123 kB", in bytes.
Result<uint64_t> read_kilobytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  if (!file) return io_error(fmt::format("device: {} cannot be read", path));
  std::string word;
  while (file >> word) {
    uint64_t kilobytes = 0;
    if (word == name + ":" && file >> kilobytes) return kilobytes * 1024;
  }
  return not_found(fmt::format("device: {} has no line '{}'", path, name));
}

}  // namespace

Result<uint64_t> proportional_set_size() {
  return read_kilobytes("/proc/self/smaps_rollup", "Pss");
}

Result<uint64_t> resident_peak() { return read_kilobytes("/proc/self/status", "VmHWM"); }

Result<uint64_t> resident_size() { return read_kilobytes("/proc/self/status", "VmRSS"); }

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace strata::device
