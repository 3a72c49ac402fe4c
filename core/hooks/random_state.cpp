#include "strata/hooks/random_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace strata::hooks {

RandomState RandomState::save(at::Device device) {
  RandomState state;
  const auto add = [&](at::Device of) {
    at::Generator generator = at::globalContext().defaultGenerator(of);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor content = generator.get_state();
    state.states_.emplace_back(std::move(generator), std::move(content));
  };
  add(at::kCPU);
  if (!device.is_cpu()) add(device);
  return state;
}

void RandomState::restore() const {
  for (const auto& [generator, content] : states_) {
    at::Generator to = generator;
    const std::lock_guard<std::mutex> lock(to.mutex());
    to.set_state(content);
  }
}

}  // namespace strata::hooks
