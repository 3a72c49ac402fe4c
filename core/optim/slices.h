// Partitions cut where parameters or their groups end, for optimizers to go through.
#ifndef STRATA_OPTIM_SLICES_H_
#define STRATA_OPTIM_SLICES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "strata/optim/gradients.h"
#include "strata/optim/kernels.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {

// A range of one partition; begin and numel are multiples of 64, so that loops over vectors never
// have a rest. Padding behind a parameter belongs to its slice.
struct Slice {
  size_t partition = 0;  // index
  int unit = 0;
  size_t parameter = 0;  // the first one, where neighbours were joined
  int group = 0;
  int64_t begin = 0;  // in the unit's flat buffer
  int64_t numel = 0;
  float* master = nullptr;
  Gradient gradient;
  // Where the states of its partition have this slice.
  float* states[2] = {};
  int replica = 0;
  int replicas = 1;

  // The blocks of 64 elements, [first, last), that this replica adds to sums over all ranks.
  int64_t first_block() const { return numel / 64 * replica / replicas; }
  int64_t last_block() const { return numel / 64 * (replica + 1) / replicas; }
};

enum class Joining { kNeighboursOfOneGroup, kNothing };

// Trainable slices of partitions that have a gradient.
//
// Returns   kUnsupported  a gradient of another dtype than fp32, bf16 and fp16; `name` is the
//                         optimizer's
Result<std::vector<Slice>> cut_slices(const std::string& name, const OptimizerInput& input,
                                      Joining joining);

// body(begin, end) over [0, numel) in multiples of 64, on all threads.
void parallel_blocks(int64_t numel, const std::function<void(int64_t begin, int64_t end)>& body);

// Elements [begin, begin + numel) of a slice, without the gradient.
kernels::Arrays arrays_at(const Slice& slice, int64_t begin, int64_t numel);

// body(arrays) for each chunk of a slice, on all threads. What arrays.gradients has is to be
// multiplied by ScaledGradient::factor(scale).
void for_each_chunk_of(const Slice& slice, const GradientScale& scale,
                       const std::function<void(const kernels::Arrays& arrays)>& body);

// weights = weights * keep - rate * direction for a whole slice, on all threads.
void apply_directions(const Slice& slice, const Values& directions, double keep, double rate);

// An optimizer whose states are as long as its slices.
class SlicedOptimizer : public Optimizer {
 protected:
  using Optimizer::Optimizer;
  Status lay_out(const OptimizerInput& input, std::span<const char* const> kinds, Joining joining);

  std::vector<ParameterGroup> groups_;
  std::vector<Slice> slices_;
};

}  // namespace strata::optim

#endif  // STRATA_OPTIM_SLICES_H_
