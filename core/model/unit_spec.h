// What a model says of its parameters before any memory exists, and the arithmetic that lays a unit
// out flat.
#ifndef STRATA_MODEL_UNIT_SPEC_H_
#define STRATA_MODEL_UNIT_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/abi/types.h"

namespace strata::model {

struct ParameterSpec {
  std::string name;            // unique in the model, the name in Hugging Face files
  std::vector<int64_t> shape;  // row-major; empty for a scalar
  bool is_trainable = true;

  int64_t numel() const;  // product of the sizes; 1 for a scalar, may be 0
};

// F32, BF16 or F16 each (STRATA_DTYPE_*). Masters are F32 whatever these are.
struct UnitDtypes {
  int32_t compute = STRATA_DTYPE_F32;     // the flat buffer, and so its parameters
  int32_t reduce = STRATA_DTYPE_F32;      // gradients on the wire
  int32_t accumulate = STRATA_DTYPE_F32;  // gradients on this rank

  friend bool operator==(const UnitDtypes&, const UnitDtypes&) = default;
};

// Parameters that are gathered, computed with and freed together.
struct UnitSpec {
  std::string name;  // for example "block.3"
  std::vector<ParameterSpec> parameters;
  UnitDtypes dtypes = {};

  bool is_trainable() const;  // whether any parameter is
};

// The units of a model and the declared order in which one forward enters them.
struct ModelSpec {
  std::vector<UnitSpec> units;
  std::vector<int> order;  // for example 0 1 2 3 0: GPT-2 with three blocks, its head tied to the
                           // embeddings in unit 0
};

// Where each parameter of a unit lies in its flat buffer.
//
//   alignment 64, multiple 128; numel 100, 3, 64
//   -> offsets 0, 128, 192; used 256; numel 256
struct FlatLayout {
  std::vector<int64_t> offsets;  // elements, one per parameter
  int64_t numel = 0;             // elements of the flat buffer, padding included

  // Ranges [first, last) that no parameter covers, by rising first.
  struct Gap {
    int64_t first = 0;
    int64_t last = 0;
  };
  std::vector<Gap> gaps;
};

// REQUIRES: alignment a power of two; multiple a multiple of alignment.
FlatLayout make_flat_layout(const UnitSpec& unit, int64_t alignment, int64_t multiple);

}  // namespace strata::model

#endif  // STRATA_MODEL_UNIT_SPEC_H_
