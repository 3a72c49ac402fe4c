// The tables that every plugin written with the SDK offers. Used by plugin_entry.cpp alone.
#ifndef STRATA_SDK_STRATEGY_TABLE_H_
#define STRATA_SDK_STRATEGY_TABLE_H_

#include <vector>

#include "strata/abi/aliases.h"
#include "strata/abi/collectives.h"
#include "strata/abi/strategy.h"
#include "strata/sdk/strategy.h"

namespace strata::sdk {

// Constant. They work over the list given to set_strategies(), which is called once, before any of
// their slots.
const strata_strategy_1_t& strategy_table();
const strata_collectives_1_t& collectives_table();
const strata_aliases_1_t& aliases_table();

void set_strategies(const std::vector<StrategyInfo>& strategies);

}  // namespace strata::sdk

#endif  // STRATA_SDK_STRATEGY_TABLE_H_
