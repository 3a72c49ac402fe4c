#include "apps/strata/played_link.h"

#include <fmt/format.h>

#include <boost/dll/shared_library.hpp>
#include <string>

#include "strata/train/rank.h"

namespace strata::apps {

Status play_link(uint64_t bytes_per_second) {
  const std::string path = train::library_folder() + "/libstrata_ccl_cpu.so";
  // Strategies open the same file, so it stays loaded and the setting is theirs.
  static boost::dll::shared_library library;
  boost::dll::fs::error_code error;
  if (!library.is_loaded()) library.load(path, error);
  if (error || !library.has("strataCclSetLink")) {
    return not_found(fmt::format("--link-bandwidth: '{}' {}. HINT: is the installation whole?",
                                 path, error ? error.message() : "plays no link"));
  }
  const auto set_link = library.get<int(uint64_t)>("strataCclSetLink");
  return set_link(bytes_per_second) == 0 ? Status() : internal_error("strataCclSetLink failed");
}

}  // namespace strata::apps
