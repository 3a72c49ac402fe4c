// Groups of parameters with their own learning rate and weight decay, chosen by regular expressions
// over parameter names.
#ifndef STRATA_OPTIM_PARAMETER_GROUPS_H_
#define STRATA_OPTIM_PARAMETER_GROUPS_H_

#include <optional>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/model/unit_spec.h"

namespace strata::optim {

// What a user says of the parameters whose name the expression is found in.
struct GroupRule {
  std::string pattern;  // ECMAScript, searched for in the name: "ln_" is enough, "^" and "$" bind
  double lr_multiplier = 1;
  std::optional<double> weight_decay;  // unset: as without the rule
};

struct ParameterGroup {
  std::string pattern;  // of its rule; "" without one
  double lr_multiplier = 1;
  double weight_decay = 0;
};

struct ParameterGroups {
  std::vector<ParameterGroup> groups;
  std::vector<std::vector<int>> group_of;  // [unit][parameter]

  const ParameterGroup& at(int unit, size_t parameter) const {
    return groups[static_cast<size_t>(group_of[static_cast<size_t>(unit)][parameter])];
  }
};

// The first rule whose expression is found in a parameter's name decides. Without one, parameters
// of two or more dimensions decay by `weight_decay`; biases and norms do not decay.
//
// Returns   kInvalidArgument  an expression that is none, or that no parameter matches: the nearest
//                             names
Result<ParameterGroups> assign_groups(const model::ModelSpec& spec,
                                      const std::vector<GroupRule>& rules, double weight_decay);

// Every parameter with its group, and what the groups hold.
std::string groups_table(const model::ModelSpec& spec, const ParameterGroups& groups);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_PARAMETER_GROUPS_H_
