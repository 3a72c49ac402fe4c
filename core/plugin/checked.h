// The checked mode: a plugin's strategy table, wrapped so that every call is held against the
// contract, on both sides.
//
// A broken rule makes the slot fail with STRATA_E_INTERNAL (the plugin's fault) or STRATA_E_STATE
// (the host's, in which case the plugin is not called), and says who, where, what and which rule:
//
//   checked: fsdp: after_forward(unit 'block.3') returned residency 7.
//   RULE: STRATA_UNIT_KEPT or STRATA_UNIT_RELEASED
//
// What is checked: states and order of calls; one thread at a time; outputs (pointers, alignment,
// enumerations, struct_size and the bytes behind it); that released units are not used again and
// kept ones do not move; that gradient targets are not the unit's own memory; that partitions are
// ordered, aligned, inside their units, and the same when asked again; texts of failures; that
// nothing but abort() and destroy() follows a lost collective.
#ifndef STRATA_PLUGIN_CHECKED_H_
#define STRATA_PLUGIN_CHECKED_H_

#include "strata/abi/strategy.h"
#include "strata/base/status.h"
#include "strata/plugin/error_sink.h"

namespace strata::plugin {

// A table that behaves as `table` does for those who keep the rules. The same table gives the same
// wrapper. Instances of a wrapped table can be used with that wrapper only. Thread-safe.
// `offer` must have strata.host.log/1, through which broken rules are told.
Result<const strata_strategy_1_t*> wrap_checked(const strata_strategy_1_t* table,
                                                const HostOffer& offer);

// The plugin's own instance behind an instance of a wrapper (for strata.collectives/1, which takes
// the plugin's); `instance` itself if it is none of ours.
strata_strategy_t* unwrap_checked(strata_strategy_t* instance);

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_CHECKED_H_
