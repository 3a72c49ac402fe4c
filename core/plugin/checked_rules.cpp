#include "strata/plugin/checked_rules.h"

#include <fmt/format.h>

#include <cstring>

namespace strata::plugin {
namespace {

std::string where(const Place& place) { return fmt::format("{}({})", place.slot, place.detail); }

bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

void Place::plugin_broke(const std::string& what, const char* rule) const {
  throw BrokenRule{STRATA_E_INTERNAL,
                   fmt::format("checked: {}: {} {}. RULE: {}", strategy, where(*this), what, rule)};
}

void Place::host_broke(const std::string& what, const char* rule) const {
  throw BrokenRule{STRATA_E_STATE, fmt::format("checked: host: {} of '{}' {}. RULE: {}",
                                               where(*this), strategy, what, rule)};
}

uint64_t dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case STRATA_DTYPE_F64:
    case STRATA_DTYPE_I64: return 8;
    case STRATA_DTYPE_F32:
    case STRATA_DTYPE_I32: return 4;
    case STRATA_DTYPE_BF16:
    case STRATA_DTYPE_F16: return 2;
    case STRATA_DTYPE_U8: return 1;
    default: return 0;
  }
}

bool is_float_dtype(int32_t dtype) {
  return dtype == STRATA_DTYPE_F32 || dtype == STRATA_DTYPE_BF16 || dtype == STRATA_DTYPE_F16 ||
         dtype == STRATA_DTYPE_F64;
}

void check_layout(const Place& place, const strata_layout_t& layout) {
  if (!is_power_of_two(layout.parameter_alignment) || layout.parameter_alignment < 64) {
    place.plugin_broke(fmt::format("asked for parameter_alignment {}", layout.parameter_alignment),
                       "a power of two, at least 64");
  }
  if (layout.unit_multiple == 0 || layout.unit_multiple % layout.parameter_alignment != 0) {
    place.plugin_broke(fmt::format("asked for unit_multiple {} with parameter_alignment {}",
                                   layout.unit_multiple, layout.parameter_alignment),
                       "a multiple of parameter_alignment");
  }
}

void check_capabilities_answer(const Place& place, const strata_capabilities_t& can) {
  if (can.min_world == 0 || (can.max_world != 0 && can.max_world < can.min_world)) {
    place.plugin_broke(
        fmt::format("answered min_world {} and max_world {}", can.min_world, can.max_world),
        "min_world is at least 1; max_world is 0 or at least min_world");
  }
  if (can.devices == 0 || can.compute_dtypes == 0 || can.reduce_dtypes == 0) {
    place.plugin_broke("answered an empty mask of devices or dtypes",
                       "a strategy states the devices and dtypes it works with");
  }
  if (can.summary == nullptr) {
    place.plugin_broke("answered summary NULL", "one line for `strata plugins list`");
  }
  if (can.reserved != 0) place.plugin_broke("set a reserved word", "reserved words are zero");
}

void check_option_answer(const Place& place, const strata_option_info_t& option) {
  if (option.key == nullptr || option.default_value == nullptr || option.description == nullptr) {
    place.plugin_broke("answered a NULL text", "key, default_value and description are texts");
  }
}

void check_memory(const Place& place, const char* what, const void* data, uint64_t numel) {
  if (numel == 0) return;
  if (data == nullptr) {
    place.plugin_broke(fmt::format("answered {} NULL for {} elements", what, numel),
                       "memory of the stated size");
  }
  if (reinterpret_cast<uintptr_t>(data) % 64 != 0) {
    place.plugin_broke(
        fmt::format("answered {} at {}, which is not a multiple of 64 bytes", what, fmt::ptr(data)),
        "units, gradients and masters begin at a multiple of 64 bytes");
  }
}

void check_view(const Place& place, const strata_unit_view_t& view, uint64_t numel, int32_t dtype) {
  if (view.dtype != dtype) {
    place.plugin_broke(fmt::format("answered a view of dtype {}, not {}", view.dtype, dtype),
                       "the unit's compute dtype in a step, F32 from open_unit");
  }
  check_memory(place, "data", view.data, numel);
}

void check_target(const Place& place, const strata_gradient_target_t& target, uint64_t numel,
                  int32_t dtype, uint32_t micro_batch) {
  if (target.dtype != dtype) {
    place.plugin_broke(fmt::format("answered dtype {}, not {}", target.dtype, dtype),
                       "the unit's accumulate_dtype");
  }
  if (target.mode != STRATA_GRADIENT_WRITE && target.mode != STRATA_GRADIENT_ADD) {
    place.plugin_broke(fmt::format("answered mode {}", target.mode),
                       "STRATA_GRADIENT_WRITE or STRATA_GRADIENT_ADD");
  }
  if (target.mode == STRATA_GRADIENT_ADD && micro_batch == 0) {
    place.plugin_broke("answered STRATA_GRADIENT_ADD in the first micro-batch of a window",
                       "ADD means that earlier micro-batches are in there");
  }
  check_memory(place, "data", target.data, numel);
}

void check_residency(const Place& place, int32_t residency, int32_t phase) {
  if (residency != STRATA_UNIT_KEPT && residency != STRATA_UNIT_RELEASED) {
    place.plugin_broke(fmt::format("returned residency {}", residency),
                       "STRATA_UNIT_KEPT or STRATA_UNIT_RELEASED");
  }
  if (residency == STRATA_UNIT_RELEASED && phase == STRATA_PHASE_RECOMPUTE) {
    place.plugin_broke("released the unit in phase RECOMPUTE",
                       "the backward of a recomputed unit follows at once: keep it");
  }
}

void check_partition(const Place& place, const strata_partition_t& p, const PartitionedUnit& unit,
                     uint32_t world_size) {
  if (p.offset % 64 != 0 || p.numel % 64 != 0) {
    place.plugin_broke(fmt::format("answered offset {} and numel {}", p.offset, p.numel),
                       "multiples of 64 elements");
  }
  if (p.numel == 0 || p.offset > unit.numel || p.numel > unit.numel - p.offset) {
    place.plugin_broke(fmt::format("answered [{}, {}) of a unit of {} elements", p.offset,
                                   p.offset + p.numel, unit.numel),
                       "a partition has elements and lies inside its unit");
  }
  check_memory(place, "master", p.master, p.numel);
  if ((p.trainable != 0) != unit.is_trainable || (p.trainable != 0 && p.trainable != 1)) {
    place.plugin_broke(fmt::format("answered trainable {} for a unit with trainable {}",
                                   p.trainable, unit.is_trainable ? 1 : 0),
                       "a partition is as trainable as its unit");
  }
  if (unit.is_trainable) {
    check_memory(place, "gradient", p.gradient, p.numel);
    if (p.gradient_dtype != unit.gradient_dtype) {
      place.plugin_broke(
          fmt::format("answered gradient_dtype {}, not {}", p.gradient_dtype, unit.gradient_dtype),
          "the unit's accumulate_dtype");
    }
    const Range master{static_cast<const char*>(p.master), p.numel * 4};
    const Range gradient{static_cast<const char*>(p.gradient),
                         p.numel * dtype_bytes(p.gradient_dtype)};
    if (master.overlaps(gradient)) {
      place.plugin_broke("answered a gradient that overlaps its master", "they are two memories");
    }
  } else if (p.gradient != nullptr) {
    place.plugin_broke("answered a gradient for a frozen unit", "NULL if the unit is frozen");
  }
  if (p.place < STRATA_PLACE_DEVICE || p.place > STRATA_PLACE_HOST) {
    place.plugin_broke(fmt::format("answered place {}", p.place), "STRATA_PLACE_*");
  }
  if (p.master_is_parameter != 0 && p.master_is_parameter != 1) {
    place.plugin_broke(fmt::format("answered master_is_parameter {}", p.master_is_parameter),
                       "1 or 0");
  }
  if (p.master_is_parameter == 1 && unit.dtype != STRATA_DTYPE_F32) {
    place.plugin_broke(
        fmt::format("answered master_is_parameter 1 for a unit of dtype {}", unit.dtype),
        "masters are F32: parameters of another dtype are another memory");
  }
  if (p.replicas == 0 || p.replicas > world_size || p.replica >= p.replicas) {
    place.plugin_broke(fmt::format("answered replica {} of {} in a world of {}", p.replica,
                                   p.replicas, world_size),
                       "1 <= replicas <= world size, replica < replicas");
  }
}

void check_unit(const Place& place, int32_t compute_dtype, int32_t reduce_dtype,
                int32_t accumulate_dtype) {
  if (is_float_dtype(compute_dtype) && is_float_dtype(reduce_dtype) &&
      is_float_dtype(accumulate_dtype)) {
    return;
  }
  place.host_broke(
      fmt::format("has dtypes {}, {} and {}", compute_dtype, reduce_dtype, accumulate_dtype),
      "compute, reduce and accumulate dtype are float dtypes");
}

void check_context(const Place& place, const strata_unit_context_t& context, uint32_t unit_count) {
  if (context.struct_size < STRATA_UNIT_CONTEXT_MIN_SIZE) {
    place.host_broke(fmt::format("has a context of {} bytes", context.struct_size),
                     "at least STRATA_UNIT_CONTEXT_MIN_SIZE");
  }
  if (context.unit >= unit_count) {
    place.host_broke(fmt::format("names unit {} of {}", context.unit, unit_count),
                     "an index of an attached unit");
  }
  if (context.next_unit != STRATA_NONE && context.next_unit >= unit_count) {
    place.host_broke(fmt::format("expects unit {} of {} next", context.next_unit, unit_count),
                     "an index of an attached unit, or STRATA_NONE");
  }
  if (context.missing_count > 0 && context.missing == nullptr) {
    place.host_broke("has missing parameters and no list of them", "a list of missing_count");
  }
}

void check_small_reduction(const Place& place, const strata_small_reduction_t* reduction) {
  if (reduction == nullptr || reduction->struct_size < STRATA_SMALL_REDUCTION_MIN_SIZE) {
    place.host_broke("has no reduction or one that is too small", "a strata_small_reduction_t");
  }
  if (reduction->dtype != STRATA_DTYPE_F64 && reduction->dtype != STRATA_DTYPE_I64) {
    place.host_broke(fmt::format("reduces dtype {}", reduction->dtype), "F64 or I64");
  }
  if (reduction->op < STRATA_REDUCE_SUM || reduction->op > STRATA_REDUCE_MAX) {
    place.host_broke(fmt::format("has op {}", reduction->op), "STRATA_REDUCE_*");
  }
  if (reduction->count > 4096 || (reduction->count > 0 && reduction->values == nullptr)) {
    place.host_broke(
        fmt::format("reduces {} numbers at {}", reduction->count, fmt::ptr(reduction->values)),
        "at most 4096 numbers in host memory");
  }
}

// FNV-1a over words of 8 bytes.
uint64_t content_hash(const void* data, uint64_t bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = 0xcbf29ce484222325;
  const auto* at = static_cast<const unsigned char*>(data);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  for (; bytes > 0; --bytes, ++at) hash = (hash ^ *at) * kPrime;
  return hash;
}

}  // namespace strata::plugin
