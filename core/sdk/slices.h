// How a unit's flat buffer is cut into one slice a rank.
//
//   numel = 512, world = 4  ->  [0,128) [128,256) [256,384) [384,512)
//
// The layout asks for a multiple of world x 64 elements, so that slices are equal and begin at a
// cache line, whatever the unit.
#ifndef STRATA_SDK_SLICES_H_
#define STRATA_SDK_SLICES_H_

#include <cstdint>

#include "strata/abi/strategy.h"

namespace strata::sdk {

// Elements to which parameters and slices are aligned: 256 bytes of fp32.
inline constexpr uint64_t kAlignment = 64;

struct Slice {
  uint64_t offset = 0;  // first element
  uint64_t numel = 0;
};

// REQUIRES: numel is a multiple of world; rank < world.
constexpr Slice slice_of(uint64_t numel, uint32_t rank, uint32_t world) {
  return {numel / world * rank, numel / world};
}

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The layout under which slice_of() works for every unit.
constexpr strata_layout_t sliced_layout(uint32_t world) {
  return {sizeof(strata_layout_t), 0, kAlignment, kAlignment * world};
}

// Elements of a unit's flat buffer under sliced_layout(), from its parameters' sizes.
inline uint64_t padded_numel(const strata_unit_t& unit, uint32_t world) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < unit.parameter_count; ++i) {
    end = round_up(end, kAlignment) + unit.parameters[i].numel;
  }
  return round_up(end, kAlignment * world);
}

}  // namespace strata::sdk

#endif  // STRATA_SDK_SLICES_H_
