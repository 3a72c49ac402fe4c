// Which parameters have a NaN or an infinity in their gradients: for the message of a run that
// cannot go on.
#ifndef STRATA_OPTIM_NONFINITE_H_
#define STRATA_OPTIM_NONFINITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/model/partition.h"
#include "strata/model/unit_spec.h"

namespace strata::optim {

// One mark a parameter, in the order of units and their parameters: 1 if an element of its gradient
// that lies in one of these partitions is not finite. A MAX over all ranks makes them whole.
//
// REQUIRES: one layout a unit; gradients are final and as backward left them.
std::vector<int64_t> mark_nonfinite_gradients(const model::ModelSpec& spec,
                                              const std::vector<model::FlatLayout>& layouts,
                                              const std::vector<model::Partition>& partitions);

// "'a', 'b', 'c' and 7 more" of the marked parameters; "none" if no mark is set.
std::string marked_parameters(const model::ModelSpec& spec, const std::vector<int64_t>& marks);

// Whether all of them are finite.
bool is_finite(const float* values, int64_t numel);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_NONFINITE_H_
