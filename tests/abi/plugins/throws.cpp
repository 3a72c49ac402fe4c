// A plugin whose entry, or whose first slot, lets an exception out.
#include <stdexcept>

#include "strata/abi/plugin.h"
#include "strata/abi/strategy.h"

namespace {

uint32_t count() { throw std::runtime_error("out of the slot"); }

template <auto pointer>
struct Slot;
template <typename Result, typename... Arguments,
          Result (*strata_strategy_1_t::*pointer)(Arguments...)>
struct Slot<pointer> {
  static Result run(Arguments...) { return Result(); }
};
#define SLOT(name) Slot<&strata_strategy_1_t::name>::run

const strata_strategy_1_t table = {sizeof(strata_strategy_1_t),
                                   0,
                                   count,
                                   SLOT(name),
                                   SLOT(describe),
                                   SLOT(option),
                                   SLOT(estimate),
                                   SLOT(create),
                                   SLOT(layout),
                                   SLOT(attach),
                                   SLOT(open_unit),
                                   SLOT(close_unit),
                                   SLOT(before_forward),
                                   SLOT(after_forward),
                                   SLOT(before_backward),
                                   SLOT(gradient_target),
                                   SLOT(after_backward),
                                   SLOT(end_backward),
                                   SLOT(partition_count),
                                   SLOT(partition),
                                   SLOT(before_step),
                                   SLOT(after_step),
                                   SLOT(all_reduce_small),
                                   SLOT(quiesce),
                                   SLOT(abort),
                                   SLOT(detach),
                                   SLOT(destroy)};

}  // namespace

extern "C" __attribute__((visibility("default"))) strata_status_t strata_plugin_entry_v1(
    const strata_hello_t*, strata_plugin_t* plugin) {
#if FAULT_ENTRY_THROWS
  throw std::runtime_error("out of the entry");
#elif FAULT_ENTRY_THROWS_INT
  throw 7;
#endif
  plugin->magic = STRATA_PLUGIN_MAGIC;
  plugin->struct_size = sizeof(strata_plugin_t);
  plugin->abi_major = STRATA_ABI_MAJOR;
  plugin->abi_built = STRATA_ABI_MINOR;
  plugin->abi_required = STRATA_ABI_MINOR;
  plugin->id = "strata.test.throws";
  plugin->version = "1";
  plugin->get_table = [](const char*) -> const void* { return &table; };
  plugin->deinit = [] {};
  return STRATA_OK;
}
