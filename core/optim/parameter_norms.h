// Norms of whole parameters from the slices that each rank owns: the same bits whatever the
// slicing.
#ifndef STRATA_OPTIM_PARAMETER_NORMS_H_
#define STRATA_OPTIM_PARAMETER_NORMS_H_

#include <string>
#include <vector>

#include "strata/model/unit_spec.h"
#include "strata/optim/norm.h"
#include "strata/optim/slices.h"

namespace strata::optim {

// Numbers the parameters of a model through, the same on every rank.
class ParameterIndex {
 public:
  explicit ParameterIndex(const model::ModelSpec& spec);
  size_t size() const { return names_.size(); }
  size_t of(int unit, size_t parameter) const {
    return first_[static_cast<size_t>(unit)] + parameter;
  }
  const std::string& name(size_t index) const { return names_[index]; }
  int64_t numel(size_t index) const { return numels_[index]; }

 private:
  std::vector<size_t> first_;  // by unit
  std::vector<std::string> names_;
  std::vector<int64_t> numels_;
};

class ParameterNorms {
 public:
  // `index` outlives this object.
  explicit ParameterNorms(const ParameterIndex& index);

  // Squares of `values`, one for each of the slice's elements. Of copies each rank adds a share.
  void add(const Slice& slice, const Values& values);
  // [collective]
  // Returns  kInternal  a parameter whose values are not finite; `optimizer` and `what` go into the
  //                     message
  Status reduce(const std::string& optimizer, const std::string& what, Reducer& reducer);

  // After reduce(): of the whole parameter.
  double norm_of(const Slice& slice) const {
    return norms_[index_.of(slice.unit, slice.parameter)];
  }
  double root_mean_square_of(const Slice& slice) const;

 private:
  const ParameterIndex& index_;
  std::vector<NormAccumulator> sums_;
  std::vector<double> norms_;
};

}  // namespace strata::optim

#endif  // STRATA_OPTIM_PARAMETER_NORMS_H_
