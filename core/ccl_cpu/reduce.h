// The arithmetic of collectives: elements combined in rank order, and copies for the caches' sake.
#ifndef STRATA_CCL_CPU_REDUCE_H_
#define STRATA_CCL_CPU_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "strata/abi/types.h"

namespace strata::ccl {

// What a copy does to the caches: kept, or written past them. Past them is faster where the data
// does not fit anyway.
enum class Caching { kKeep, kBypass };

// 0 for an unknown dtype.
size_t element_size(int32_t dtype);

struct Target {
  void* data;  // a source, or apart from all sources
  Caching caching;
};

struct Reduction {
  int32_t dtype;  // STRATA_DTYPE_*
  int32_t op;     // STRATA_REDUCE_*
  const void* const* sources;
  uint32_t source_count;  // at least 1
  const Target* targets;
  uint32_t target_count;  // at least 1
  size_t count;           // elements
};

// targets[t][i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ... for every t and i.
//
// 16-bit floats are combined in fp32 and rounded to nearest even once. Integers wrap around. The
// bits depend on nothing but the sources: not on count, alignment or the machine's vectors. Any
// alignment to the element is all right, and so is none.
void reduce(const Reduction& reduction);

// memcpy.
void copy(void* target, const void* source, size_t bytes, Caching caching);

// Which vectors reduce() uses: "avx512", "avx2", "baseline".
const char* vector_level();
// Uses at most that level from now on; null means the best. For tests. False: unknown here.
bool limit_vector_level(const char* level);

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_REDUCE_H_
