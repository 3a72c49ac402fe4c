// strata doctor: what is here, and what would stop a run.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "apps/strata/command.h"
#include "strata/base/text.h"
#include "strata/launch/environment.h"
#include "strata/model/libtorch_compat.h"
#include "strata/plugin/registry.h"
#include "strata/train/rank.h"

namespace strata::apps {
namespace {

// The lines of the report, and whether one of them would stop a run.
class Report {
 public:
  void say(const std::string& what, const std::string& text) {
    std::fputs(fmt::format("  {:<16}{}\n", what, text).c_str(), stdout);
  }
  void warn(const std::string& what, const std::string& text) {
    say(what, "MISSING: " + text);
    is_healthy_ = false;
  }
  bool is_healthy() const { return is_healthy_; }

 private:
  bool is_healthy_ = true;
};

// A line of /proc/meminfo in bytes; 0 if it has none.
uint64_t memory_of(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (uint64_t kibibytes = 0; file >> key >> kibibytes && std::getline(file, unit);) {
    if (key == name + ":") return kibibytes * 1024;
  }
  return 0;
}

void look_at_communication(Report& report) {
  const std::string path = train::library_folder() + "/libstrata_ccl_cpu.so";
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    using Version = int (*)(int*);
    int version = 0;
    const auto get = reinterpret_cast<Version>(dlsym(library, "ncclGetVersion"));
    if (get != nullptr) get(&version);
    report.say("communication", fmt::format("{} (NCCL interface {})", path, version));
  } else {
    report.warn("communication", fmt::format("{}; several ranks need it", dlerror()));
  }
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space("/dev/shm", error);
  if (error) {
    report.warn("shared memory", "/dev/shm: " + error.message());
  } else {
    report.say("shared memory", text::format_bytes(space.available) + " free in /dev/shm");
  }
}

void look_at_gpu(Report& report) {
  device::HostConfig config;
  config.device = {STRATA_DEVICE_CUDA, 0};
  config.device_library = train::library_folder() + "/libstrata_device_cuda.so";
  const auto host = device::Host::create(config);
  report.say("GPU", host.ok() ? "CUDA device 0 answers; training runs on CPU so far"
                              : "none: " + host.status().message());
}

void look_at_plugins(Report& report, const config::DoctorConfig& config) {
  plugin::PluginRegistry registry(train::host_offer(), plugin::search_places(config.plugin_path));
  for (const plugin::SearchPlace& place : registry.places()) {
    report.say("plugin folder", fmt::format("{} ({})", place.path, place.origin));
  }
  bool has_any = false;
  for (const plugin::FoundPlugin& found : registry.list()) {
    if (found.library == nullptr) {
      report.warn("plugin", found.status.message());
      continue;
    }
    has_any = true;
    report.say("plugin", fmt::format("{} {}: {}", found.library->id(), found.library->version(),
                                     text::join(found.library->strategies())));
  }
  if (!has_any) report.warn("plugin", "no strategy found. HINT: --plugin-path FOLDER");
}

}  // namespace

int run(const config::DoctorConfig& config) {
  Report report;
  report.say("Strata", STRATA_VERSION);
  report.say("LibTorch", model::libtorch::version());
  report.say("cores", std::to_string(launch::usable_cores()));
  report.say("memory", fmt::format("{} free of {}", text::format_bytes(memory_of("MemAvailable")),
                                   text::format_bytes(memory_of("MemTotal"))));
  look_at_communication(report);
  look_at_gpu(report);
  look_at_plugins(report, config);
  return report.is_healthy() ? kExitDone : kExitFailed;
}

}  // namespace strata::apps
