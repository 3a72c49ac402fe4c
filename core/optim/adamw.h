// AdamW (Loshchilov and Hutter 2019) over partitions: LibTorch's fused kernel on slices that this
// rank owns.
#ifndef STRATA_OPTIM_ADAMW_H_
#define STRATA_OPTIM_ADAMW_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/model/partition.h"
#include "strata/model/unit_spec.h"

namespace strata::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay =
      0;  // of parameters of two or more dimensions; biases and norms do not decay
};

class AdamW {
 public:
  // Zeroed fp32 memory for `numel` elements, given back when the last owner goes.
  using Memory = std::shared_ptr<float>;
  using Allocate = std::function<Result<Memory>(int64_t numel)>;

  // One fp32 state of one partition, `numel` of the partition long.
  struct StateTensor {
    std::string name;  // "exp_avg", "exp_avg_sq"
    float* data = nullptr;
  };

  // `partitions` point to masters and gradients that stay where they are. Slices are cut where a
  // parameter group ends, always at multiples of 64 elements, so that an element's update does not
  // depend on the slice it lies in. Padding stays zero.
  //
  // Returns   kUnsupported  a gradient that is not fp32
  //           what `allocate` returns
  static Result<std::unique_ptr<AdamW>> create(const AdamWOptions& options,
                                               const model::ModelSpec& spec,
                                               const std::vector<model::FlatLayout>& layouts,
                                               const std::vector<model::Partition>& partitions,
                                               const Allocate& allocate);

  // Updates all masters: gradient * factor is what the formula calls the gradient. Gradients are
  // left multiplied by it.
  //
  // REQUIRES: factor > 0 and finite.
  Status step(double learning_rate, double factor);

  // Updates done so far.
  int64_t step_count() const { return step_count_; }
  void set_step_count(int64_t steps) { step_count_ = steps; }

  // The states of partition `index`; none if it is frozen.
  const std::vector<StateTensor>& state(size_t index) const { return states_.at(index); }

 private:
  // Slices with the same decay, as tensors over their memory.
  struct Group {
    double weight_decay = 0;
    std::vector<at::Tensor> masters, gradients, exp_avgs, exp_avg_sqs, steps;
  };

  explicit AdamW(const AdamWOptions& options) : options_(options) {}
  void add_segments(const model::UnitSpec& unit, const model::FlatLayout& layout,
                    const model::Partition& partition, const std::vector<StateTensor>& state);
  void add_segment(const model::Partition& partition, const std::vector<StateTensor>& state,
                   int64_t begin, int64_t end, bool decays);

  AdamWOptions options_;
  Group groups_[2];  // without decay, with
  std::vector<std::vector<StateTensor>> states_;
  std::vector<Memory> memory_;
  at::Tensor steps_;  // one fp32 scalar, shared by all slices
  at::Tensor scale_;
  int64_t step_count_ = 0;
};

}  // namespace strata::optim

#endif  // STRATA_OPTIM_ADAMW_H_
