// The handshake of abi/plugin.h, from the host's side: calls the entry once, believes nothing.
#ifndef STRATA_PLUGIN_HANDSHAKE_H_
#define STRATA_PLUGIN_HANDSHAKE_H_

#include <string>

#include "strata/abi/plugin.h"
#include "strata/abi/strategy.h"
#include "strata/base/status.h"
#include "strata/plugin/error_sink.h"

namespace strata::plugin {

// Calls `entry` and checks every field that it filled. `path` names the plugin in messages. The
// hello that the plugin saw lives until the process ends.
Result<strata_plugin_t> shake_hands(strata_plugin_entry_fn entry, const HostOffer& offer,
                                    const std::string& path);

// Every field of a filled strata_plugin_t, as shake_hands does.
Status check_plugin(const strata_plugin_t& plugin, const std::string& path);

// Size, reserved word and slots of a strategy table. `path` names the plugin in messages.
Status check_strategy_table(const strata_strategy_1_t* table, const std::string& path);

// Whether the text is a legal id or name: 1 to STRATA_ID_MAX - 1 letters, digits, '.', '_', '-',
// ended by NUL. An empty string if it is, else what is wrong.
std::string find_id_fault(const char* text, size_t limit);

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_HANDSHAKE_H_
