// A shared library that kept the contract's handshake (abi/plugin.h), and every reason why one may
// not.
//
// Opened by absolute path with RTLD_NOW | RTLD_LOCAL and never closed: code of a plugin may still
// run in threads, thread-locals and static destructors that no host can see. A file that is refused
// is never called again, and stays refused for this process.
#ifndef STRATA_PLUGIN_LIBRARY_H_
#define STRATA_PLUGIN_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "strata/abi/plugin.h"
#include "strata/abi/strategy.h"
#include "strata/base/status.h"
#include "strata/plugin/error_sink.h"

namespace strata::plugin {

struct OptionDescription {
  std::string key;
  std::string default_value;
  std::string description;
};

// A name that users know from elsewhere, as a strategy of this library plus options.
struct Alias {
  std::string name;      // for example "full_shard"
  std::string strategy;  // for example "fsdp"
  std::string options;   // "key=value,key=value", or ""
};

enum class Closing {
  kNever,  // production
  kAtEnd,  // tests: deinit and a real dlclose when the last reference goes
};

class PluginLibrary {
 public:
  // Opens the file, shakes hands, and checks the strategy table. The same file twice is the same
  // object.
  //
  // Returns   kNotFound         no such file
  //           kUnsupported      another machine, a host too old for it, another major version
  //           kInvalidArgument  not a plugin, or one that breaks a rule of the contract
  // The message has the absolute path, what was found, what is needed, and a hint. Thread-safe.
  static Result<std::shared_ptr<PluginLibrary>> load(const std::string& file,
                                                     const HostOffer& offer,
                                                     Closing closing = Closing::kNever);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  const std::string& path() const { return path_; }  // absolute
  const std::string& id() const { return id_; }
  const std::string& version() const { return version_; }
  std::string abi_built() const;     // "0.1"
  std::string abi_required() const;  // "0.1"

  // At least one; unique.
  const std::vector<std::string>& strategies() const { return strategies_; }
  bool has_strategy(const std::string& name) const;
  Result<strata_capabilities_t> describe(const std::string& strategy) const;
  Result<std::vector<OptionDescription>> options(const std::string& strategy) const;
  const std::vector<Alias>& aliases() const { return aliases_; }

  const strata_strategy_1_t* strategy_table() const { return table_; }
  // Any other table of the plugin's, or null. `table_size` is the least struct_size wanted.
  const void* optional_table(const char* id, uint32_t table_size) const;
  ErrorSink& errors() const { return *offer_.errors; }
  const HostOffer& offer() const { return offer_; }

 private:
  struct Opened;
  PluginLibrary(std::string path, const HostOffer& offer, std::unique_ptr<Opened> opened);
  Status read_strategy_table();
  Status read_aliases();

  std::string path_;
  HostOffer offer_;
  std::unique_ptr<Opened> opened_;
  std::string id_;
  std::string version_;
  strata_plugin_t plugin_{};
  const strata_strategy_1_t* table_ = nullptr;
  std::vector<std::string> strategies_;
  std::vector<Alias> aliases_;
};

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_LIBRARY_H_
