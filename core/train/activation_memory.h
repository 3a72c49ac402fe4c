// Counts what LibTorch allocates on the CPU (activations, temporaries) in the host's device arena.
#ifndef STRATA_TRAIN_ACTIVATION_MEMORY_H_
#define STRATA_TRAIN_ACTIVATION_MEMORY_H_

#include "strata/device/host.h"

namespace strata::train {

// While it lives, LibTorch's CPU allocator of this process reports every block to `host`, tagged as
// activations. One at a time per process: with ranks as threads nothing is counted. Blocks may
// outlive it.
class ActivationMemory {
 public:
  explicit ActivationMemory(device::Host& host);
  ~ActivationMemory();
  ActivationMemory(const ActivationMemory&) = delete;
  ActivationMemory& operator=(const ActivationMemory&) = delete;
};

}  // namespace strata::train

#endif  // STRATA_TRAIN_ACTIVATION_MEMORY_H_
