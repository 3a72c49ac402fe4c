// Which plugins are installed, and which of them a user means.
#ifndef STRATA_PLUGIN_REGISTRY_H_
#define STRATA_PLUGIN_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/plugin/library.h"
#include "strata/plugin/request.h"

namespace strata::plugin {

// One folder (or one file) in which plugins may lie.
struct SearchPlace {
  std::string path;
  std::string origin;          // who named it, for example "--plugin-path"
  bool must_be_there = false;  // the user named it for this run
};

// The search order: the places of --plugin-path (each may have several, separated by ':'), those of
// STRATA_PLUGIN_PATH, then ../lib/strata/plugins beside the executable's folder.
std::vector<SearchPlace> search_places(const std::vector<std::string>& plugin_path_flags);

// What a request came to.
struct ResolvedStrategy {
  std::shared_ptr<PluginLibrary> library;
  std::string name;     // one of library->strategies()
  OptionList options;   // those of an alias, overridden by the user's
  std::string message;  // what to tell the user, for example that an alias was taken; or ""
};

// One file of a place, loaded or not.
struct FoundPlugin {
  std::string file;
  std::string origin;
  std::shared_ptr<PluginLibrary> library;  // null if it did not load
  Status status;                           // why
};

class PluginRegistry {
 public:
  PluginRegistry(const HostOffer& offer, std::vector<SearchPlace> places,
                 Closing closing = Closing::kNever);

  // Finds the strategy: in each place in turn libstrata_NAME.so, then every other libstrata_*.so,
  // since a library may hold several strategies; then the names as aliases. An earlier place wins.
  //
  // Returns   kNotFound  no such strategy: nearest name, every name found with its file, every
  // place
  //           kInvalidArgument  two libraries of one place have it
  //           as load()  the file of that name is there and does not load: the run ends here, with
  //                      every place searched; no other file is taken in its stead
  Result<ResolvedStrategy> find(const StrategyRequest& request);

  // Every libstrata_*.so of all places, in search order, for `strata plugins list`.
  const std::vector<FoundPlugin>& list();

  const std::vector<SearchPlace>& places() const { return places_; }

 private:
  // What is known of one place.
  struct Scan {
    bool is_complete = false;
    std::vector<FoundPlugin> files;
  };

  Result<ResolvedStrategy> find_in_file(const StrategyRequest& request);
  Result<std::shared_ptr<PluginLibrary>> find_by_name(const std::string& name);
  Result<std::shared_ptr<PluginLibrary>> find_in_place(size_t place, const std::string& name);
  Result<ResolvedStrategy> find_alias(const StrategyRequest& request);
  const FoundPlugin& load_file(size_t place, const std::string& file);
  void scan(size_t place);
  Status refuse_unknown(const std::string& name);
  std::string places_text() const;

  HostOffer offer_;
  std::vector<SearchPlace> places_;
  Closing closing_;
  std::vector<Scan> scans_;  // one per place
  std::vector<FoundPlugin> all_;
};

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_REGISTRY_H_
