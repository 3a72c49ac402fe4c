// Activation checkpointing of one entry: forward keeps the input only, backward computes again.
//
// Re-entrant: the entry is one node of autograd's graph, whose backward runs the body with
// gradients on and then autograd on the result, on the same thread. Parameters' gradients come from
// that inner run, also when the input itself has none (token ids).
#ifndef STRATA_HOOKS_RECOMPUTE_H_
#define STRATA_HOOKS_RECOMPUTE_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "strata/hooks/backward_walk.h"
#include "strata/hooks/unit_runner.h"

namespace strata::hooks {

// Runs `body` without gradients; the result requires one. The default generators of the CPU and of
// `device` are where the body leaves them; in backward it starts from the same state, and they are
// put back behind it.
at::Tensor run_recomputed(const at::Tensor& input, const UnitRunner::Body& body,
                          std::weak_ptr<BackwardWalk> walk, int entry, at::Device device);

// What a hook says whose pass is over.
[[noreturn]] void throw_pass_is_over();

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_RECOMPUTE_H_
