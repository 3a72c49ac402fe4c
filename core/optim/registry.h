// All optimizers, by the name that --optim takes.
#ifndef STRATA_OPTIM_REGISTRY_H_
#define STRATA_OPTIM_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {

std::vector<std::string> optimizer_names();

// Returns   kNotFound     no optimizer of that name
//           kUnsupported  a gradient of another dtype than fp32, bf16 and fp16
//           what `input.allocate` returns
Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                  const OptimizerInput& input);

// Whether this optimizer can update what a strategy owns, before it is made. LAMB and Adafactor
// take sums over whole parameters: the partitions of all ranks must have each element of a
// trainable parameter once, copies counted by their shares. [collective]
//
// Returns   kUnsupported  optimizer, strategy, parameter, and how many of its elements there are
//           what `reducer` returns
Status check_partitions(const OptimizerOptions& options, const std::string& strategy,
                        const OptimizerInput& input, Reducer& reducer);

// ---- one a file ----

using MadeOptimizer = Result<std::unique_ptr<Optimizer>>;
MadeOptimizer make_adam(const OptimizerOptions& options, const OptimizerInput& input);
MadeOptimizer make_elementwise(const OptimizerOptions& options, const OptimizerInput& input);
MadeOptimizer make_adafactor(const OptimizerOptions& options, const OptimizerInput& input);
MadeOptimizer make_lamb(const OptimizerOptions& options, const OptimizerInput& input);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_REGISTRY_H_
