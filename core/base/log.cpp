#include "strata/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace strata::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("strata",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::debug);
    const char* wanted = std::getenv("STRATA_LOG_LEVEL");
    made->set_level(wanted == nullptr ? spdlog::level::info : spdlog::level::from_str(wanted));
    return made;
  }();
  return *instance;
}

}  // namespace

void write(Level level, std::string_view text) { logger().log(to_spdlog(level), "{}", text); }

bool is_enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void set_rank(int rank) {
  logger().set_pattern(rank < 0 ? "%v" : "[rank " + std::to_string(rank) + "] %v");
}

}  // namespace strata::log
