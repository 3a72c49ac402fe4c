// The state of LibTorch's default generators, so that dropout in a recomputed forward drops the
// same elements.
#ifndef STRATA_HOOKS_RANDOM_STATE_H_
#define STRATA_HOOKS_RANDOM_STATE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace strata::hooks {

class RandomState {
 public:
  // Of the CPU, and of `device` if that is another one.
  static RandomState save(at::Device device);
  void restore() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Puts the present state back at the end of a scope, also when that ends by an exception.
class RandomStateScope {
 public:
  explicit RandomStateScope(at::Device device) : state_(RandomState::save(device)) {}
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;
  ~RandomStateScope() { state_.restore(); }

 private:
  RandomState state_;
};

}  // namespace strata::hooks

#endif  // STRATA_HOOKS_RANDOM_STATE_H_
