#include "strata/plugin/library.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <filesystem>
#include <map>
#include <mutex>

#include "strata/abi/aliases.h"
#include "strata/plugin/elf_file.h"
#include "strata/plugin/handshake.h"

namespace strata::plugin {
namespace {

namespace dll = boost::dll;

// No library has more strategies, options or aliases; what says so is broken.
constexpr uint32_t kMostEntries = 1000;

// Which file it is, under whatever name.
using FileKey = std::pair<uint64_t, uint64_t>;

struct Known {
  std::weak_ptr<PluginLibrary> library;
  std::shared_ptr<PluginLibrary> kept;  // never closed
  Status refusal;                       // after its entry was called
};

struct Cache {
  std::mutex mutex;
  std::map<FileKey, Known> files;
};

// Never destroyed: threads of plugins may outlive main.
Cache& cache() {
  static Cache& instance = *new Cache;  // NOLINT
  return instance;
}

Status broken(const std::string& path, const std::string& fault) {
  return invalid_argument(
      fmt::format("plugin '{}' breaks the contract: {}. HINT: `strata plugins check FILE` names "
                  "every such rule",
                  path, fault));
}

Result<dll::shared_library> open_library(const std::string& path) {
  dll::shared_library library;
  try {
    library.load(path, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
  } catch (const std::exception& error) {
    return invalid_argument(
        fmt::format("plugin '{}' does not load: {}. HINT: `ldd -r {}` shows what is missing", path,
                    error.what(), path));
  }
  if (!library.has(STRATA_PLUGIN_ENTRY_NAME)) {
    return invalid_argument(fmt::format(
        "plugin '{}' is a shared library without the symbol '{}', so it is not a Strata plugin. "
        "HINT: STRATA_PLUGIN(...) in one of its sources defines it",
        path, STRATA_PLUGIN_ENTRY_NAME));
  }
  return library;
}

}  // namespace

struct PluginLibrary::Opened {
  dll::shared_library library;
  Closing closing = Closing::kNever;
};

PluginLibrary::PluginLibrary(std::string path, const HostOffer& offer,
                             std::unique_ptr<Opened> opened)
    : path_(std::move(path)), offer_(offer), opened_(std::move(opened)) {}

PluginLibrary::~PluginLibrary() {
  if (opened_->closing == Closing::kNever) {
    (void)opened_.release();  // stays open
  } else if (plugin_.deinit != nullptr) {
    plugin_.deinit();
  }
}

Result<std::shared_ptr<PluginLibrary>> PluginLibrary::load(const std::string& file,
                                                           const HostOffer& offer,
                                                           Closing closing) {
  const std::string path = std::filesystem::absolute(file).lexically_normal().string();
  STRATA_RETURN_IF_ERROR(check_shared_library_file(path));
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return io_error("plugin '" + path + "' vanished");
  const std::lock_guard lock(cache().mutex);
  Known& known = cache().files[{info.st_dev, info.st_ino}];
  if (std::shared_ptr<PluginLibrary> loaded = known.library.lock()) return loaded;
  if (!known.refusal.ok()) return known.refusal;
  STRATA_ASSIGN_OR_RETURN(dll::shared_library opened, open_library(path));
  auto holder = std::make_unique<Opened>();
  holder->library = std::move(opened);
  holder->closing = closing;
  auto* entry = &holder->library.get<strata_status_t(const strata_hello_t*, strata_plugin_t*)>(
      STRATA_PLUGIN_ENTRY_NAME);
  std::shared_ptr<PluginLibrary> library(new PluginLibrary(path, offer, std::move(holder)));
  const Status status = [&]() -> Status {
    STRATA_ASSIGN_OR_RETURN(const strata_plugin_t plugin, shake_hands(entry, offer, path));
    library->plugin_ = plugin;
    library->id_ = plugin.id;
    library->version_ = plugin.version;
    try {
      STRATA_RETURN_IF_ERROR(library->read_strategy_table());
      return library->read_aliases();
    } catch (const std::exception& error) {
      return broken(path, fmt::format("a slot of its table threw '{}'", error.what()));
    } catch (...) {
      return broken(path, "a slot of its table threw");
    }
  }();
  if (!status.ok()) {
    library->plugin_.deinit = nullptr;  // never called again
    if (closing == Closing::kNever) known.refusal = status;
    return status;
  }
  known.library = library;
  if (closing == Closing::kNever) known.kept = library;
  return library;
}

Status PluginLibrary::read_strategy_table() {
  table_ = static_cast<const strata_strategy_1_t*>(plugin_.get_table(STRATA_STRATEGY_1));
  STRATA_RETURN_IF_ERROR(check_strategy_table(table_, path_));
  const uint32_t count = table_->count();
  if (count == 0 || count > kMostEntries) {
    return broken(path_, fmt::format("it says that it has {} strategies", count));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = table_->name(i);
    const std::string fault = find_id_fault(name, STRATA_ID_MAX);
    if (!fault.empty()) return broken(path_, fmt::format("the name of strategy {} {}", i, fault));
    if (has_strategy(name)) {
      return broken(path_, fmt::format("it has two strategies of the name '{}'", name));
    }
    strategies_.emplace_back(name);
    STRATA_ASSIGN_OR_RETURN(const strata_capabilities_t capabilities, describe(name));
    if (capabilities.min_world == 0 || capabilities.devices == 0 ||
        capabilities.compute_dtypes == 0) {
      return broken(path_, fmt::format("its strategy '{}' states no {}", name,
                                       capabilities.min_world == 0 ? "fewest ranks"
                                       : capabilities.devices == 0 ? "device"
                                                                   : "compute dtype"));
    }
  }
  if (table_->name(count) != nullptr) {
    return broken(path_, fmt::format("it has a name behind the last of its {} strategies", count));
  }
  return {};
}

Status PluginLibrary::read_aliases() {
  const auto* table = static_cast<const strata_aliases_1_t*>(
      optional_table(STRATA_ALIASES_X_1, sizeof(strata_aliases_1_t)));
  if (table == nullptr || table->alias == nullptr) return {};
  for (uint32_t i = 0; i < kMostEntries; ++i) {
    strata_alias_t alias{};
    alias.struct_size = sizeof(alias);
    if (table->alias(i, &alias) != STRATA_OK) break;
    const std::string fault = find_id_fault(alias.alias, STRATA_ID_MAX);
    if (!fault.empty()) return broken(path_, fmt::format("the name of alias {} {}", i, fault));
    if (alias.strategy == nullptr || alias.options == nullptr || !has_strategy(alias.strategy)) {
      return broken(path_,
                    fmt::format("its alias '{}' stands for no strategy of its own", alias.alias));
    }
    aliases_.push_back({alias.alias, alias.strategy, alias.options});
  }
  (void)errors().take();  // "no more aliases"
  return {};
}

std::string PluginLibrary::abi_built() const {
  return fmt::format("{}.{}", plugin_.abi_major, plugin_.abi_built);
}

std::string PluginLibrary::abi_required() const {
  return fmt::format("{}.{}", plugin_.abi_major, plugin_.abi_required);
}

bool PluginLibrary::has_strategy(const std::string& name) const {
  return std::find(strategies_.begin(), strategies_.end(), name) != strategies_.end();
}

Result<strata_capabilities_t> PluginLibrary::describe(const std::string& strategy) const {
  strata_capabilities_t capabilities{};
  capabilities.struct_size = sizeof(capabilities);
  (void)errors().take();
  if (table_->describe(strategy.c_str(), &capabilities) != STRATA_OK) {
    return broken(path_, fmt::format("it lists the strategy '{}' and does not describe it: {}",
                                     strategy, errors().take()));
  }
  return capabilities;
}

Result<std::vector<OptionDescription>> PluginLibrary::options(const std::string& strategy) const {
  std::vector<OptionDescription> options;
  for (uint32_t i = 0; i < kMostEntries; ++i) {
    strata_option_info_t option{};
    option.struct_size = sizeof(option);
    if (table_->option(strategy.c_str(), i, &option) != STRATA_OK) break;
    if (option.key == nullptr || option.default_value == nullptr || option.description == nullptr) {
      return broken(path_,
                    fmt::format("option {} of its strategy '{}' has a NULL text", i, strategy));
    }
    options.push_back({option.key, option.default_value, option.description});
  }
  (void)errors().take();
  return options;
}

const void* PluginLibrary::optional_table(const char* id, uint32_t table_size) const {
  const void* table = plugin_.get_table(id);
  // Every table begins with its size.
  if (table == nullptr || *static_cast<const uint32_t*>(table) < table_size) return nullptr;
  return table;
}

}  // namespace strata::plugin
