// strata plugins list | info FILE | check FILE
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "apps/strata/command.h"
#include "strata/base/log.h"
#include "strata/base/text.h"
#include "strata/plugin/capabilities.h"
#include "strata/plugin/registry.h"
#include "strata/train/rank.h"

namespace strata::apps {
namespace {

std::string info_text(const plugin::PluginLibrary& library) {
  std::string out =
      fmt::format("{} {} ({})\n  contract built {}, needs {}\n", library.id(), library.version(),
                  library.path(), library.abi_built(), library.abi_required());
  for (const std::string& name : library.strategies()) {
    const auto capabilities = library.describe(name);
    const auto options = library.options(name);
    if (!capabilities.ok() || !options.ok()) continue;
    out += fmt::format(
        "\n{}: {}\n  devices {}, computes in {}, reduces in {}, gradients in {}, can: {}\n", name,
        capabilities->summary, plugin::devices_text(capabilities->devices),
        plugin::dtypes_text(capabilities->compute_dtypes),
        plugin::dtypes_text(capabilities->reduce_dtypes),
        plugin::dtypes_text(plugin::accumulate_dtypes(*capabilities)),
        plugin::capabilities_text(*capabilities));
    for (const plugin::OptionDescription& option : *options) {
      out += fmt::format("  {}={}  {}\n", option.key, option.default_value, option.description);
    }
  }
  for (const plugin::Alias& alias : library.aliases()) {
    out += fmt::format("\n{} stands for {}{}{}\n", alias.name, alias.strategy,
                       alias.options.empty() ? "" : ":", alias.options);
  }
  return out;
}

}  // namespace

int run(const config::PluginsListConfig& config) {
  plugin::PluginRegistry registry(train::host_offer(), plugin::search_places(config.plugin_path));
  std::vector<std::vector<std::string>> rows = {{"strategy", "plugin", "version", "file"}};
  std::vector<std::string> broken;
  for (const plugin::FoundPlugin& found : registry.list()) {
    if (found.library == nullptr) {
      broken.push_back(found.status.message());
      continue;
    }
    for (const std::string& name : found.library->strategies()) {
      rows.push_back({name, found.library->id(), found.library->version(), found.file});
    }
  }
  std::fputs(text::format_table(rows).c_str(), stdout);
  for (const std::string& message : broken) log::error("{}", message);
  return broken.empty() ? kExitDone : kExitFailed;
}

int run(const config::PluginsInfoConfig& config) {
  const auto library = plugin::PluginLibrary::load(std::filesystem::absolute(config.file).string(),
                                                   train::host_offer());
  if (!library.ok()) return exit_code_of(library.status(), false);
  std::fputs(info_text(**library).c_str(), stdout);
  return kExitDone;
}

}  // namespace strata::apps
