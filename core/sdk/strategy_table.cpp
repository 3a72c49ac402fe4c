#include "strata/sdk/strategy_table.h"

#include <string>

#include "strata/sdk/grown_struct.h"
#include "strata/sdk/options.h"
#include "strata/sdk/strategy_instance.h"

namespace strata::sdk {
namespace {

const std::vector<StrategyInfo>* all_strategies = nullptr;

const StrategyInfo& find_strategy(const char* name) {
  if (name == nullptr) throw Error(STRATA_E_INVALID_ARGUMENT, "name is NULL");
  std::string known;
  for (const StrategyInfo& info : *all_strategies) {
    if (std::strcmp(info.name, name) == 0) return info;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  throw Error(STRATA_E_NOT_FOUND, "this library has no strategy '" + std::string(name) +
                                      "'. It has " + known + ". HINT: take one of these");
}

// ---- without an instance ----

uint32_t count() { return static_cast<uint32_t>(all_strategies->size()); }

const char* name(uint32_t index) {
  return index < all_strategies->size() ? (*all_strategies)[index].name : nullptr;
}

strata_status_t describe(const char* name, strata_capabilities_t* out) {
  return fence(nullptr, "describe", [&] {
    check_output(out, STRATA_CAPABILITIES_MIN_SIZE, "capabilities");
    write_struct(out, find_strategy(name).capabilities);
  });
}

strata_status_t option(const char* name, uint32_t index, strata_option_info_t* out) {
  return fence(nullptr, "option", [&] {
    check_output(out, STRATA_OPTION_INFO_MIN_SIZE, "option_info");
    const StrategyInfo& info = find_strategy(name);
    if (index >= info.options.size()) {
      throw Error(STRATA_E_NOT_FOUND,
                  std::string(name) + " has " + std::to_string(info.options.size()) + " options");
    }
    strata_option_info_t filled{};
    filled.key = info.options[index].key;
    filled.default_value = info.options[index].default_value;
    filled.description = info.options[index].description;
    write_struct(out, filled);
  });
}

// The create arguments in our own shape, checked.
struct CreateArgs {
  strata_create_args_t args;
  strata_world_t world;

  explicit CreateArgs(const strata_create_args_t* from)
      : args(read_struct(from, STRATA_CREATE_ARGS_MIN_SIZE, "create_args")),
        world(read_struct(args.world, STRATA_WORLD_MIN_SIZE, "world")) {
    args.world = &world;
    if (args.option_count > 0 && args.options == nullptr) {
      throw Error(STRATA_E_INVALID_ARGUMENT, "options is NULL");
    }
    for (uint32_t i = 0; i < args.option_count; ++i) {
      if (args.options[i].key == nullptr || args.options[i].value == nullptr) {
        throw Error(STRATA_E_INVALID_ARGUMENT, "an option has a NULL key or value");
      }
    }
    if (world.size == 0 || world.rank >= world.size) {
      throw Error(STRATA_E_INVALID_ARGUMENT, "rank " + std::to_string(world.rank) +
                                                 " in a world of " + std::to_string(world.size));
    }
  }
  CreateArgs(const CreateArgs&) = delete;

  void check_against(const strata_capabilities_t& can) const {
    if (world.size < can.min_world || (can.max_world != 0 && world.size > can.max_world)) {
      const std::string most = can.max_world == 0 ? "" : " to " + std::to_string(can.max_world);
      throw Error(STRATA_E_INVALID_ARGUMENT,
                  "a world of " + std::to_string(world.size) + " ranks; it works with " +
                      std::to_string(can.min_world) + (most.empty() ? " or more" : most) +
                      ". HINT: change the number of ranks");
    }
    const bool is_known = args.device.type >= 0 && args.device.type < 64;
    if (!is_known || (can.devices & STRATA_DEVICE_BIT(args.device.type)) == 0) {
      throw Error(STRATA_E_UNSUPPORTED, "device type " + std::to_string(args.device.type) +
                                            " is not among those it can use");
    }
  }
};

strata_status_t estimate(const strata_create_args_t* from, const strata_model_t* model,
                         strata_estimate_t* out) {
  const char* name = from != nullptr && from->name != nullptr ? from->name : "estimate";
  return fence(nullptr, name, [&] {
    const CreateArgs create(from);
    const StrategyInfo& info = find_strategy(create.args.name);
    create.check_against(info.capabilities);
    check_output(out, STRATA_ESTIMATE_MIN_SIZE, "estimate");
    if (info.estimate == nullptr) {
      throw Error(STRATA_E_UNSUPPORTED, "has no estimate. HINT: run it and read the counters");
    }
    const ModelCopy copy(model);
    write_struct(out, info.estimate(create.args, copy.get()));
  });
}

// ---- life ----

strata_status_t create(const strata_create_args_t* from, strata_strategy_t** out) {
  if (out == nullptr) {
    return fail(nullptr, "create", STRATA_E_INVALID_ARGUMENT, "the place for the result is NULL");
  }
  *out = nullptr;
  strata_host_t* host = from != nullptr ? from->host : nullptr;
  const char* name = from != nullptr && from->name != nullptr ? from->name : "create";
  return fence(host, name, [&] {
    const CreateArgs create(from);
    const StrategyInfo& info = find_strategy(create.args.name);
    if (host == nullptr) throw Error(STRATA_E_INVALID_ARGUMENT, "create_args.host is NULL");
    create.check_against(info.capabilities);
    auto self = std::make_unique<strata_strategy>();
    self->host = host;
    self->name = info.name;
    self->world_size = create.world.size;
    self->strategy = info.create(create.args);
    if (self->strategy == nullptr) throw Error(STRATA_E_INTERNAL, "create made no instance");
    *out = self.release();
  });
}

strata_status_t layout(strata_strategy_t* self, const strata_unit_t* unit, strata_layout_t* out) {
  return fence(self, [&](Strategy& strategy) {
    check_output(out, STRATA_LAYOUT_MIN_SIZE, "layout");
    const UnitCopy copy(unit);
    write_struct(out, strategy.layout(copy.get()));
  });
}

strata_status_t attach(strata_strategy_t* self, const strata_model_t* model) {
  return fence(self, [&](Strategy& strategy) {
    const ModelCopy copy(model);
    strategy.attach(copy.get());
  });
}

strata_status_t open_unit(strata_strategy_t* self, uint32_t unit, int32_t intent,
                          strata_unit_view_t* out) {
  return fence(self, [&](Strategy& strategy) {
    check_output(out, STRATA_UNIT_VIEW_MIN_SIZE, "unit_view");
    write_struct(out, strategy.open_unit(unit, intent));
  });
}

strata_status_t close_unit(strata_strategy_t* self, uint32_t unit) {
  return fence(self, [&](Strategy& strategy) { strategy.close_unit(unit); });
}

// ---- one micro-batch ----

strata_unit_context_t read_context(const strata_unit_context_t* from) {
  return read_struct(from, STRATA_UNIT_CONTEXT_MIN_SIZE, "unit_context");
}

void write_residency(int32_t* out, int32_t residency) {
  if (out == nullptr) throw Error(STRATA_E_INVALID_ARGUMENT, "residency is NULL");
  *out = residency;
}

strata_status_t before_forward(strata_strategy_t* self, const strata_unit_context_t* context,
                               strata_unit_view_t* out) {
  return fence(self, [&](Strategy& strategy) {
    check_output(out, STRATA_UNIT_VIEW_MIN_SIZE, "unit_view");
    write_struct(out, strategy.before_forward(read_context(context)));
  });
}

strata_status_t after_forward(strata_strategy_t* self, const strata_unit_context_t* context,
                              int32_t* residency) {
  return fence(self, [&](Strategy& strategy) {
    write_residency(residency, strategy.after_forward(read_context(context)));
  });
}

strata_status_t before_backward(strata_strategy_t* self, const strata_unit_context_t* context,
                                strata_unit_view_t* out) {
  return fence(self, [&](Strategy& strategy) {
    check_output(out, STRATA_UNIT_VIEW_MIN_SIZE, "unit_view");
    write_struct(out, strategy.before_backward(read_context(context)));
  });
}

strata_status_t gradient_target(strata_strategy_t* self, const strata_unit_context_t* context,
                                strata_gradient_target_t* out) {
  return fence(self, [&](Strategy& strategy) {
    check_output(out, STRATA_GRADIENT_TARGET_MIN_SIZE, "gradient_target");
    write_struct(out, strategy.gradient_target(read_context(context)));
  });
}

strata_status_t after_backward(strata_strategy_t* self, const strata_unit_context_t* context,
                               int32_t* residency) {
  return fence(self, [&](Strategy& strategy) {
    write_residency(residency, strategy.after_backward(read_context(context)));
  });
}

strata_status_t end_backward(strata_strategy_t* self, int32_t sync) {
  return fence(self, [&](Strategy& strategy) { strategy.end_backward(sync != 0); });
}

// ---- the step ----

uint32_t partition_count(strata_strategy_t* self) {
  uint32_t count = 0;
  const strata_status_t status = fence(self, [&](Strategy& strategy) {
    count = static_cast<uint32_t>(strategy.partitions().size());
  });
  return status == STRATA_OK ? count : 0;
}

strata_status_t partition(strata_strategy_t* self, uint32_t index, strata_partition_t* out) {
  return fence(self, [&](Strategy& strategy) {
    check_output(out, STRATA_PARTITION_MIN_SIZE, "partition");
    const std::vector<strata_partition_t>& all = strategy.partitions();
    if (index >= all.size()) {
      throw Error(STRATA_E_INVALID_ARGUMENT,
                  "partition " + std::to_string(index) + " of " + std::to_string(all.size()));
    }
    write_struct(out, all[index]);
  });
}

strata_status_t before_step(strata_strategy_t* self) {
  return fence(self, [](Strategy& strategy) { strategy.before_step(); });
}

strata_status_t after_step(strata_strategy_t* self, int32_t updated) {
  return fence(self, [&](Strategy& strategy) { strategy.after_step(updated != 0); });
}

strata_status_t all_reduce_small(strata_strategy_t* self, const strata_small_reduction_t* from) {
  return fence(self, [&](Strategy& strategy) {
    strategy.all_reduce_small(
        read_struct(from, STRATA_SMALL_REDUCTION_MIN_SIZE, "small_reduction"));
  });
}

// ---- the end ----

strata_status_t quiesce(strata_strategy_t* self) {
  return fence(self, [](Strategy& strategy) { strategy.quiesce(); });
}

void abort(strata_strategy_t* self, const char* reason) {
  if (self != nullptr) self->strategy->abort(reason != nullptr ? reason : "no reason given");
}

strata_status_t detach(strata_strategy_t* self) {
  return fence(self, [](Strategy& strategy) { strategy.detach(); });
}

void destroy(strata_strategy_t* self) {
  (void)fence(nullptr, "destroy", [&] { delete self; });
}

// ---- aliases ----

strata_status_t alias(uint32_t index, strata_alias_t* out) {
  return fence(nullptr, "alias", [&] {
    check_output(out, STRATA_ALIAS_MIN_SIZE, "alias");
    for (const StrategyInfo& info : *all_strategies) {
      if (index < info.aliases.size()) {
        strata_alias_t filled{};
        filled.alias = info.aliases[index].alias;
        filled.strategy = info.name;
        filled.options = info.aliases[index].options;
        write_struct(out, filled);
        return;
      }
      index -= static_cast<uint32_t>(info.aliases.size());
    }
    throw Error(STRATA_E_NOT_FOUND, "no more aliases");
  });
}

}  // namespace

const strata_strategy_1_t& strategy_table() {
  static constexpr strata_strategy_1_t table = {sizeof(strata_strategy_1_t),
                                                0,
                                                count,
                                                name,
                                                describe,
                                                option,
                                                estimate,
                                                create,
                                                layout,
                                                attach,
                                                open_unit,
                                                close_unit,
                                                before_forward,
                                                after_forward,
                                                before_backward,
                                                gradient_target,
                                                after_backward,
                                                end_backward,
                                                partition_count,
                                                partition,
                                                before_step,
                                                after_step,
                                                all_reduce_small,
                                                quiesce,
                                                abort,
                                                detach,
                                                destroy};
  return table;
}

const strata_aliases_1_t& aliases_table() {
  static constexpr strata_aliases_1_t table = {sizeof(strata_aliases_1_t), 0, alias};
  return table;
}

void set_strategies(const std::vector<StrategyInfo>& strategies) { all_strategies = &strategies; }

}  // namespace strata::sdk
