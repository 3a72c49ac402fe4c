// The log: spdlog behind four functions, so that callers do not compile its headers.
//
// Lines go to stderr, prefixed with the rank in a world of several. Level from STRATA_LOG_LEVEL
// (debug, info, warning, error; default info). The library never prints by other means.
#ifndef STRATA_BASE_LOG_H_
#define STRATA_BASE_LOG_H_

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace strata::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// Writes one line. Thread-safe.
void write(Level level, std::string_view text);
bool is_enabled(Level level);
// Puts "[rank 1] " in front of the lines of this process; -1 takes it away.
void set_rank(int rank);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(Level::kDebug))
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace strata::log

#endif  // STRATA_BASE_LOG_H_
