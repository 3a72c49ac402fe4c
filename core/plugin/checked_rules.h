// The rules of the checked mode that need no memory of earlier calls, and how a broken one is told.
// Internal to core/plugin.
#ifndef STRATA_PLUGIN_CHECKED_RULES_H_
#define STRATA_PLUGIN_CHECKED_RULES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "strata/abi/strategy.h"

namespace strata::plugin {

// A broken rule, on its way to the fence of the slot that found it.
struct BrokenRule {
  strata_status_t code;  // INTERNAL: the plugin's fault; STATE: the host's
  std::string text;
};

// Who is asked, in which slot, about what: the beginning of every text.
struct Place {
  std::string_view strategy;
  const char* slot;
  std::string detail;  // for example "unit 'block.3'"; or ""

  [[noreturn]] void plugin_broke(const std::string& what, const char* rule) const;
  [[noreturn]] void host_broke(const std::string& what, const char* rule) const;
};

// An output struct with bytes behind it that the plugin must leave alone.
template <typename T>
class Fenced {
 public:
  Fenced() {
    value.struct_size = sizeof(T);
    canary_.fill(kCanary);
  }
  // Throws BrokenRule if struct_size or a byte behind the struct has changed.
  void check(const Place& place) const {
    if (value.struct_size != sizeof(T)) {
      place.plugin_broke("changed struct_size from " + std::to_string(sizeof(T)) + " to " +
                             std::to_string(value.struct_size),
                         "struct_size belongs to the side that allocates the struct");
    }
    for (const unsigned char byte : canary_) {
      if (byte != kCanary) {
        place.plugin_broke(
            "wrote past the " + std::to_string(sizeof(T)) + " bytes that the caller has",
            "write no byte past the caller's struct_size");
      }
    }
  }
  T value{};

 private:
  static constexpr unsigned char kCanary = 0xC3;
  std::array<unsigned char, 64> canary_;
};

uint64_t dtype_bytes(int32_t dtype);  // 0 for an unknown dtype
bool is_float_dtype(int32_t dtype);

// A range of memory.
struct Range {
  const char* first = nullptr;
  uint64_t bytes = 0;
  bool overlaps(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && first < other.first + other.bytes &&
           other.first < first + bytes;
  }
};

// What a plugin answered, against the contract. Each throws BrokenRule.
void check_layout(const Place& place, const strata_layout_t& layout);
void check_capabilities_answer(const Place& place, const strata_capabilities_t& capabilities);
void check_option_answer(const Place& place, const strata_option_info_t& option);
void check_memory(const Place& place, const char* what, const void* data, uint64_t numel);
void check_view(const Place& place, const strata_unit_view_t& view, uint64_t numel, int32_t dtype);
void check_target(const Place& place, const strata_gradient_target_t& target, uint64_t numel,
                  int32_t dtype, uint32_t micro_batch);
void check_residency(const Place& place, int32_t residency, int32_t phase);
// What a partition is held against: its unit.
struct PartitionedUnit {
  uint64_t numel;
  bool is_trainable;
  int32_t dtype;
  int32_t gradient_dtype;
};
void check_partition(const Place& place, const strata_partition_t& partition,
                     const PartitionedUnit& unit, uint32_t world_size);

// What a host gave.
void check_unit(const Place& place, int32_t compute_dtype, int32_t reduce_dtype,
                int32_t accumulate_dtype);
void check_context(const Place& place, const strata_unit_context_t& context, uint32_t unit_count);
void check_small_reduction(const Place& place, const strata_small_reduction_t* reduction);

// A number that two equal contents share.
uint64_t content_hash(const void* data, uint64_t bytes);

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_CHECKED_RULES_H_
