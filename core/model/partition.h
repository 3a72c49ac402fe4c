// A slice of a unit that this rank owns and updates, as optimizers, clipping and checkpoints see
// it.
#ifndef STRATA_MODEL_PARTITION_H_
#define STRATA_MODEL_PARTITION_H_

#include <cstdint>

namespace strata::model {

struct Partition {
  int unit = 0;
  int64_t offset = 0;          // first element in the unit's flat buffer, a multiple of 64
  int64_t numel = 0;           // elements, padding included, a multiple of 64
  float* master = nullptr;     // fp32, borrowed from the plugin until detach
  void* gradient = nullptr;    // null if frozen
  int32_t gradient_dtype = 1;  // STRATA_DTYPE_*
  bool is_trainable = true;
  bool master_is_parameter = true;
  int replicas = 1;                // ranks that hold the same copy
  int replica = 0;                 // which of them this is
  void* gradient_ready = nullptr;  // strata_event_t, or null
};

}  // namespace strata::model

#endif  // STRATA_MODEL_PARTITION_H_
