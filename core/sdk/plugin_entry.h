// The entry of a plugin written with the SDK: one macro.
//
//   const std::vector<StrategyInfo>& fsdp_strategies();     // one entry per strategy of the
//   library STRATA_PLUGIN("strata.fsdp", "0.1.0", fsdp_strategies)  // at file scope, once per
//   library
//
// The macro defines the one exported symbol. Behind it the SDK
//   - checks every field of the host's hello and fetches the host's tables into services();
//   - offers "strata.strategy/1" over the virtual functions of Strategy, "strata.collectives/1"
//   over
//     Strategy::communicator(), and "x.strata.aliases/1" over StrategyInfo::aliases;
//   - keeps the growth rules of structs: reads no byte of a smaller host's struct that is not
//     there, writes none past the size that the caller stated;
//   - lets nothing unwind out: an Error becomes its code, std::bad_alloc
//     STRATA_E_OUT_OF_MEMORY, anything else STRATA_E_INTERNAL; the text goes to the host's error
//     sink, prefixed by the strategy's name unless it already is.
#ifndef STRATA_SDK_PLUGIN_ENTRY_H_
#define STRATA_SDK_PLUGIN_ENTRY_H_

#include <vector>

#include "strata/abi/plugin.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk {

// What STRATA_PLUGIN says of a library.
struct PluginInfo {
  const char* id;       // unique among plugins, for example "strata.fsdp"
  const char* version;  // for example "0.1.0"
  const std::vector<StrategyInfo>& (*strategies)();
};

// The body of strata_plugin_entry_v1. Called once per library.
strata_status_t enter_plugin(const PluginInfo& info, const strata_hello_t* hello,
                             strata_plugin_t* plugin) noexcept;

}  // namespace strata::sdk

#define STRATA_PLUGIN(plugin_id, plugin_version, list_of_strategies)                          \
  extern "C" __attribute__((visibility("default"))) strata_status_t strata_plugin_entry_v1(   \
      const strata_hello_t* host, strata_plugin_t* plugin) {                                  \
    return ::strata::sdk::enter_plugin({plugin_id, plugin_version, list_of_strategies}, host, \
                                       plugin);                                               \
  }

#endif  // STRATA_SDK_PLUGIN_ENTRY_H_
