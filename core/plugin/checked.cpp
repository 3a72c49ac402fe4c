#include "strata/plugin/checked.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "strata/plugin/checked_instance.h"
#include "strata/plugin/checked_rules.h"

namespace strata::plugin {
namespace {

// Slots without an instance carry nothing that says whose they are, so each wrapped table has its
// own copy of them. More plugins than this in one process are not to be expected.
constexpr size_t kMostTables = 32;

// ---- which instances are alive ----

struct Alive {
  std::mutex mutex;
  std::unordered_set<const void*> instances;
};

Alive& alive() {
  static Alive& instance = *new Alive;  // NOLINT: outlives all threads
  return instance;
}

bool is_alive(const void* self) {
  const std::lock_guard lock(alive().mutex);
  return alive().instances.count(self) != 0;
}

CheckedInstance* as_instance(strata_strategy_t* self) {
  return reinterpret_cast<CheckedInstance*>(self);
}

// The sink of the table wrapped last, for slots called on what is no instance.
std::atomic<const strata_host_log_1_t*> any_log{nullptr};

const strata_host_log_1_t* log_of(const HostOffer& offer) {
  return static_cast<const strata_host_log_1_t*>(offer.get_table(STRATA_HOST_LOG_1));
}

strata_status_t tell(const strata_host_log_1_t* log, strata_host_t* host, strata_status_t code,
                     const std::string& text) {
  if (log != nullptr) log->fail(host, code, text.c_str());
  return code;
}

std::string not_alive_text(const char* slot) {
  return fmt::format(
      "checked: host: {}() of an instance that is not alive. RULE: instances are "
      "used from create() to destroy()",
      slot);
}

// ---- fences ----

template <typename Body>
strata_status_t fence(const HostOffer& offer, strata_host_t* host, const char* slot,
                      const Body& body) {
  try {
    return body();
  } catch (const BrokenRule& rule) {
    return tell(log_of(offer), host, rule.code, rule.text);
  } catch (const std::exception& error) {
    return tell(
        log_of(offer), host, STRATA_E_INTERNAL,
        fmt::format("checked: {} threw '{}'. RULE: nothing unwinds across", slot, error.what()));
  } catch (...) {
    return tell(log_of(offer), host, STRATA_E_INTERNAL,
                fmt::format("checked: {} threw. RULE: nothing unwinds across", slot));
  }
}

template <typename Body>
strata_status_t fence(strata_strategy_t* self, const char* slot, const Body& body) {
  if (!is_alive(self)) return tell(any_log, nullptr, STRATA_E_STATE, not_alive_text(slot));
  CheckedInstance& instance = *as_instance(self);
  if (!instance.enter()) {
    return tell(log_of(instance.offer()), instance.host(), STRATA_E_STATE,
                fmt::format("checked: host: {}() of '{}' while another slot is running. RULE: all "
                            "slots but abort() are called by one thread, never concurrently",
                            slot, instance.strategy()));
  }
  const strata_status_t status =
      fence(instance.offer(), instance.host(), slot, [&] { return body(instance); });
  if (status == STRATA_E_INTERNAL) instance.mark_broken();
  instance.leave();
  return status;
}

// ---- slots without an instance ----

strata_status_t checked_describe(const strata_strategy_1_t& table, const HostOffer& offer,
                                 const char* name, strata_capabilities_t* out) {
  return fence(offer, nullptr, "describe", [&]() -> strata_status_t {
    const Place at{name, "describe", ""};
    Fenced<strata_capabilities_t> first, second;
    const strata_status_t status = table.describe(name, &first.value);
    first.check(at);
    if (status != STRATA_OK) return status;
    check_capabilities_answer(at, first.value);
    if (table.describe(name, &second.value) != STRATA_OK ||
        second.value.flags != first.value.flags || second.value.devices != first.value.devices ||
        second.value.compute_dtypes != first.value.compute_dtypes) {
      at.plugin_broke("answered something else when asked again", "capabilities are constant");
    }
    const uint32_t size = out->struct_size;
    std::memcpy(out, &first.value, std::min<size_t>(size, sizeof(*out)));
    out->struct_size = size;
    return STRATA_OK;
  });
}

strata_status_t checked_option(const strata_strategy_1_t& table, const HostOffer& offer,
                               const char* name, uint32_t index, strata_option_info_t* out) {
  return fence(offer, nullptr, "option", [&]() -> strata_status_t {
    const Place at{name, "option", fmt::format("index {}", index)};
    Fenced<strata_option_info_t> answer;
    const strata_status_t status = table.option(name, index, &answer.value);
    answer.check(at);
    if (status != STRATA_OK) return status;
    check_option_answer(at, answer.value);
    const uint32_t size = out->struct_size;
    std::memcpy(out, &answer.value, std::min<size_t>(size, sizeof(*out)));
    out->struct_size = size;
    return STRATA_OK;
  });
}

// A failure must have a text, which stays in the sink.
strata_status_t need_text(const Place& at, const HostOffer& offer, strata_host_t* host,
                          strata_status_t status) {
  const std::string text = offer.errors->take();
  if (text.empty()) {
    at.plugin_broke(fmt::format("returned status {} and wrote no text", status),
                    "a failing return has a text in the host's error sink");
  }
  return tell(log_of(offer), host, status, text);
}

strata_status_t checked_estimate(const strata_strategy_1_t& table, const HostOffer& offer,
                                 const strata_create_args_t* args, const strata_model_t* model,
                                 strata_estimate_t* out) {
  return fence(offer, nullptr, "estimate", [&]() -> strata_status_t {
    const Place at{args->name, "estimate", ""};
    if (args->host != nullptr) at.host_broke("has a host", "host is NULL in estimate()");
    Fenced<strata_estimate_t> answer;
    const strata_status_t status = table.estimate(args, model, &answer.value);
    answer.check(at);
    if (status != STRATA_OK) return need_text(at, offer, nullptr, status);
    const uint32_t size = out->struct_size;
    std::memcpy(out, &answer.value, std::min<size_t>(size, sizeof(*out)));
    out->struct_size = size;
    return STRATA_OK;
  });
}

strata_status_t checked_create(const strata_strategy_1_t& table, const HostOffer& offer,
                               const strata_create_args_t* args, strata_strategy_t** out) {
  return fence(offer, args->host, "create", [&]() -> strata_status_t {
    const Place at{args->name, "create", ""};
    *out = nullptr;
    if (args->host == nullptr || args->world == nullptr) {
      at.host_broke("has no host or no world", "both are lent until destroy()");
    }
    auto instance = std::make_unique<CheckedInstance>(&table, offer, *args);
    const strata_status_t status = table.create(args, &instance->inner);
    if (status != STRATA_OK) {
      if (instance->inner != nullptr) {
        at.plugin_broke("failed and left an instance", "on error *out is NULL");
      }
      return need_text(at, offer, args->host, status);
    }
    if (instance->inner == nullptr) {
      at.plugin_broke("returned STRATA_OK and no instance", "*out is the instance");
    }
    const std::lock_guard lock(alive().mutex);
    alive().instances.insert(instance.get());
    *out = reinterpret_cast<strata_strategy_t*>(instance.release());
    return STRATA_OK;
  });
}

// ---- slots of an instance ----

// The slot of strata_strategy_1_t with the signature of `method`, a member of CheckedInstance.
template <auto method, typename... Arguments>
strata_status_t run(strata_strategy_t* self, const char* slot, Arguments... arguments) {
  return fence(self, slot,
               [&](CheckedInstance& instance) { return (instance.*method)(arguments...); });
}

uint32_t checked_partition_count(strata_strategy_t* self) {
  uint32_t count = 0;
  const strata_status_t status = fence(self, "partition_count", [&](CheckedInstance& instance) {
    count = instance.partition_count();
    return STRATA_OK;
  });
  return status == STRATA_OK ? count : 0;
}

void checked_abort(strata_strategy_t* self, const char* reason) {
  if (is_alive(self)) {
    as_instance(self)->abort(reason);
  } else {
    tell(any_log, nullptr, STRATA_E_STATE, not_alive_text("abort"));
  }
}

void checked_destroy(strata_strategy_t* self) {
  if (self == nullptr) return;
  {
    const std::lock_guard lock(alive().mutex);
    if (alive().instances.erase(self) == 0) {
      tell(any_log, nullptr, STRATA_E_STATE, not_alive_text("destroy"));
      return;
    }
  }
  const std::unique_ptr<CheckedInstance> instance(as_instance(self));
  instance->table().destroy(instance->inner);
}

// ---- the wrapped tables ----

template <size_t N>
struct Wrapped {
  static inline const strata_strategy_1_t* inner = nullptr;
  static inline HostOffer offer{};

  static uint32_t count() { return inner->count(); }
  static const char* name(uint32_t index) { return inner->name(index); }
  static strata_status_t describe(const char* name, strata_capabilities_t* out) {
    return checked_describe(*inner, offer, name, out);
  }
  static strata_status_t option(const char* name, uint32_t index, strata_option_info_t* out) {
    return checked_option(*inner, offer, name, index, out);
  }
  static strata_status_t estimate(const strata_create_args_t* args, const strata_model_t* model,
                                  strata_estimate_t* out) {
    return checked_estimate(*inner, offer, args, model, out);
  }
  static strata_status_t create(const strata_create_args_t* args, strata_strategy_t** out) {
    return checked_create(*inner, offer, args, out);
  }
};

// What all wrapped tables share.
strata_strategy_1_t instance_slots() {
  using I = CheckedInstance;
  using Self = strata_strategy_t;
  using Context = const strata_unit_context_t;
  strata_strategy_1_t t{};
  t.struct_size = sizeof(t);
  t.layout = [](Self* self, const strata_unit_t* unit, strata_layout_t* out) {
    return run<&I::layout>(self, "layout", unit, out);
  };
  t.attach = [](Self* self, const strata_model_t* model) {
    return run<&I::attach>(self, "attach", model);
  };
  t.open_unit = [](Self* self, uint32_t unit, int32_t intent, strata_unit_view_t* out) {
    return run<&I::open_unit>(self, "open_unit", unit, intent, out);
  };
  t.close_unit = [](Self* self, uint32_t unit) {
    return run<&I::close_unit>(self, "close_unit", unit);
  };
  t.before_forward = [](Self* self, Context* context, strata_unit_view_t* out) {
    return run<&I::before_forward>(self, "before_forward", context, out);
  };
  t.after_forward = [](Self* self, Context* context, int32_t* residency) {
    return run<&I::after_forward>(self, "after_forward", context, residency);
  };
  t.before_backward = [](Self* self, Context* context, strata_unit_view_t* out) {
    return run<&I::before_backward>(self, "before_backward", context, out);
  };
  t.gradient_target = [](Self* self, Context* context, strata_gradient_target_t* out) {
    return run<&I::gradient_target>(self, "gradient_target", context, out);
  };
  t.after_backward = [](Self* self, Context* context, int32_t* residency) {
    return run<&I::after_backward>(self, "after_backward", context, residency);
  };
  t.end_backward = [](Self* self, int32_t sync) {
    return run<&I::end_backward>(self, "end_backward", sync);
  };
  t.partition_count = checked_partition_count;
  t.partition = [](Self* self, uint32_t index, strata_partition_t* out) {
    return run<&I::partition>(self, "partition", index, out);
  };
  t.before_step = [](Self* self) { return run<&I::before_step>(self, "before_step"); };
  t.after_step = [](Self* self, int32_t updated) {
    return run<&I::after_step>(self, "after_step", updated);
  };
  t.all_reduce_small = [](Self* self, const strata_small_reduction_t* reduction) {
    return run<&I::all_reduce_small>(self, "all_reduce_small", reduction);
  };
  t.quiesce = [](Self* self) { return run<&I::quiesce>(self, "quiesce"); };
  t.abort = checked_abort;
  t.detach = [](Self* self) { return run<&I::detach>(self, "detach"); };
  t.destroy = checked_destroy;
  return t;
}

struct Slot {
  strata_strategy_1_t table;
  const strata_strategy_1_t** inner;
  HostOffer* offer;
};

template <size_t N>
Slot make_slot() {
  strata_strategy_1_t table = instance_slots();
  table.count = Wrapped<N>::count;
  table.name = Wrapped<N>::name;
  table.describe = Wrapped<N>::describe;
  table.option = Wrapped<N>::option;
  table.estimate = Wrapped<N>::estimate;
  table.create = Wrapped<N>::create;
  return {table, &Wrapped<N>::inner, &Wrapped<N>::offer};
}

template <size_t... N>
std::array<Slot, sizeof...(N)> make_slots(std::index_sequence<N...>) {
  return {make_slot<N>()...};
}

}  // namespace

Result<const strata_strategy_1_t*> wrap_checked(const strata_strategy_1_t* table,
                                                const HostOffer& offer) {
  static std::mutex mutex;
  static auto& slots = *new std::array<Slot, kMostTables>(  // NOLINT: tables live for ever
      make_slots(std::make_index_sequence<kMostTables>()));
  if (log_of(offer) == nullptr) {
    return invalid_argument("checked: the host offers no table '" STRATA_HOST_LOG_1 "'");
  }
  any_log = log_of(offer);
  const std::lock_guard lock(mutex);
  for (Slot& slot : slots) {
    if (*slot.inner != nullptr && *slot.inner != table) continue;
    *slot.inner = table;
    *slot.offer = offer;
    return const_cast<const strata_strategy_1_t*>(&slot.table);
  }
  return unsupported(
      fmt::format("checked: more than {} plugins in one process. HINT: run without "
                  "the checked mode",
                  kMostTables));
}

strata_strategy_t* unwrap_checked(strata_strategy_t* instance) {
  return is_alive(instance) ? as_instance(instance)->inner : instance;
}

}  // namespace strata::plugin
