#include "strata/optim/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "strata/base/text.h"
#include "strata/optim/parameter_norms.h"
#include "strata/optim/slices.h"

namespace strata::optim {
namespace {

struct Entry {
  const char* name;
  MadeOptimizer (*make)(const OptimizerOptions& options, const OptimizerInput& input);
  bool sums_over_parameters;
};

constexpr Entry kOptimizers[] = {
    {"adamw", make_adam, false},       {"adam", make_adam, false},
    {"sgd", make_elementwise, false},  {"adagrad", make_elementwise, false},
    {"lion", make_elementwise, false}, {"adafactor", make_adafactor, true},
    {"lamb", make_lamb, true},
};

Result<const Entry*> find(const std::string& name) {
  for (const Entry& entry : kOptimizers) {
    if (entry.name == name) return &entry;
  }
  const std::vector<std::string> names = optimizer_names();
  const std::string near = text::nearest(name, names);
  return not_found(fmt::format("optimizer: '{}' is unknown{}. HINT: known are {}", name,
                               near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                               text::join(names)));
}

// Elements of each parameter that this rank adds to sums over it.
std::vector<int64_t> summed_elements(const std::vector<Slice>& slices, const OptimizerInput& input,
                                     const ParameterIndex& index) {
  std::vector<int64_t> elements(index.size(), 0);
  for (const Slice& slice : slices) {
    const size_t parameter = index.of(slice.unit, slice.parameter);
    const int64_t first =
        slice.begin - input.layouts[static_cast<size_t>(slice.unit)].offsets[slice.parameter];
    const int64_t begin = first + slice.first_block() * 64;
    const int64_t end = std::min(first + slice.last_block() * 64, index.numel(parameter));
    elements[parameter] += std::max(end - begin, int64_t{0});
  }
  return elements;
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kOptimizers) names.emplace_back(entry.name);
  return names;
}

Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                  const OptimizerInput& input) {
  STRATA_ASSIGN_OR_RETURN(const Entry* const entry, find(options.name));
  return entry->make(options, input);
}

Status check_partitions(const OptimizerOptions& options, const std::string& strategy,
                        const OptimizerInput& input, Reducer& reducer) {
  STRATA_ASSIGN_OR_RETURN(const Entry* const entry, find(options.name));
  if (!entry->sums_over_parameters) return {};
  STRATA_ASSIGN_OR_RETURN(const std::vector<Slice> slices,
                          cut_slices(options.name, input, Joining::kNothing));
  const ParameterIndex index(input.spec);
  std::vector<int64_t> elements = summed_elements(slices, input, index);
  STRATA_RETURN_IF_ERROR(reducer.sum(elements));
  for (size_t u = 0; u < input.spec.units.size(); ++u) {
    const std::vector<model::ParameterSpec>& parameters = input.spec.units[u].parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t found = elements[index.of(static_cast<int>(u), i)];
      if (!parameters[i].is_trainable || found == parameters[i].numel()) continue;
      return unsupported(fmt::format(
          "{}: takes sums over whole parameters, and the partitions of strategy '{}' have {} of "
          "the {} elements of '{}' over all ranks. HINT: --optim adamw, or another strategy",
          options.name, strategy, found, parameters[i].numel(), parameters[i].name));
    }
  }
  return {};
}

}  // namespace strata::optim
