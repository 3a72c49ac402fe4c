// Which samples each rank takes in each step: shuffled, disjoint, resumable, the same for every
// division of the global batch.
//
// One epoch visits the samples in a permutation that depends on (seed, epoch) alone. A step takes
// the next G = world * batch * accumulation of them, whatever the three factors are:
//
//   place in the step's G samples = (micro * world + rank) * batch + row
//
// so 1 rank x batch 8, 2 ranks x 4, and 1 rank x 4 with 2 micro-batches train on the same samples.
// The samples at the end of an epoch that do not fill a step are dropped; the next epoch begins.
//
// The permutation: Fisher-Yates from the last element down, on splitmix64 (Steele et al. 2014)
// seeded with splitmix64(seed) ^ splitmix64(~epoch), bounded by Lemire's multiplication with
// rejection (2019). It is part of the meaning of a checkpoint and does not change.
#ifndef STRATA_DATA_SAMPLER_H_
#define STRATA_DATA_SAMPLER_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "strata/base/status.h"

namespace strata::data {

struct SamplerOptions {
  int64_t size = 0;  // samples of the data set
  int world = 1;
  int rank = 0;
  int64_t batch = 1;         // samples of one micro-batch on one rank
  int64_t accumulation = 1;  // micro-batches of one step
  uint64_t seed = 0;
  bool shuffle = true;  // false: in the order of the data set (for evaluation)
};

class DistributedSampler {
 public:
  // Returns invalid_argument with the values: size, world, batch or accumulation below 1, rank
  // outside of the world, more ranks than samples, a global batch larger than the data set.
  static Result<DistributedSampler> create(const SamplerOptions& options);

  int64_t global_batch() const { return global_batch_; }
  // Steps of an epoch that begins at its first sample.
  int64_t steps_per_epoch() const { return options_.size / global_batch_; }

  // This rank's samples in micro-batch `micro` of the current step.
  //
  // REQUIRES: 0 <= micro < accumulation, out.size() == batch.
  void micro_batch(int64_t micro, std::span<int64_t> out) const;

  // The current step is done.
  void advance();

  int64_t epoch() const { return epoch_; }
  // Samples of this epoch that all ranks together have taken.
  int64_t position() const { return position_; }

  // {"epoch": 1, "position": 512, "seed": 7, "size": 34000}: the same on every rank.
  nlohmann::json state() const;
  // Continues exactly behind the step after which state() was taken, also with another world,
  // batch or accumulation.
  //
  // Returns invalid_argument when the state is of another data set size or seed, or is broken.
  // On error  the sampler is as it was.
  Status restore(const nlohmann::json& state);

 private:
  explicit DistributedSampler(const SamplerOptions& options);
  // Begins the next epoch when what is left does not fill a step.
  void settle();
  void shuffle_epoch();

  SamplerOptions options_;
  int64_t global_batch_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace strata::data

#endif  // STRATA_DATA_SAMPLER_H_
