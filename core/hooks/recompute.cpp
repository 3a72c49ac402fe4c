#include "strata/hooks/recompute.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "strata/base/status.h"
#include "strata/hooks/random_state.h"

namespace strata::hooks {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What an entry keeps between forward and backward, beside its input.
struct Kept : torch::CustomClassHolder {
  UnitRunner::Body body;
  std::weak_ptr<BackwardWalk> walk;
  int entry = 0;
  at::Device device = at::kCPU;
  RandomState random;
};

class RecomputeScope {
 public:
  RecomputeScope(BackwardWalk& walk, int entry) : walk_(walk) { walk_.begin_recompute(entry); }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;
  ~RecomputeScope() { walk_.end_recompute(); }

 private:
  BackwardWalk& walk_;
};

at::Tensor forward_again(const Kept& kept, const at::Tensor& input) {
  const RandomStateScope put_back(kept.device);
  kept.random.restore();
  const c10::AutoGradMode gradients_on(true);
  return kept.body(input);
}

// The second input is an empty tensor that requires a gradient: it makes autograd run this node
// also when nothing else does.
struct RecomputedEntry : torch::autograd::Function<RecomputedEntry> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& anchor, const c10::intrusive_ptr<Kept>& kept) {
    context->set_materialize_grads(false);
    context->save_for_backward({input});
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->body(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data.at("kept").toCapsule());
    const std::shared_ptr<BackwardWalk> walk = kept->walk.lock();
    if (walk == nullptr) throw_pass_is_over();
    const at::Tensor saved = context->get_saved_variables()[0];
    const at::Tensor input = saved.detach();
    if (saved.requires_grad()) input.requires_grad_();

    const RecomputeScope scope(*walk, kept->entry);
    const at::Tensor output = forward_again(*kept, input);
    walk->recompute_is_done(kept->entry);
    if (output.requires_grad()) torch::autograd::backward({output}, {gradients[0]});
    kept->body = nullptr;  // with all that it captured
    return {input.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor run_recomputed(const at::Tensor& input, const UnitRunner::Body& body,
                          std::weak_ptr<BackwardWalk> walk, int entry, at::Device device) {
  auto kept = c10::make_intrusive<Kept>();
  kept->body = body;
  kept->walk = std::move(walk);
  kept->entry = entry;
  kept->device = device;
  kept->random = RandomState::save(device);
  const at::Tensor anchor = at::empty({0}).requires_grad_();
  return RecomputedEntry::apply(input, anchor, kept);
}

void throw_pass_is_over() {
  throw StatusError(wrong_state(
      "hooks: a backward reached a forward that was given up or whose backward is over. HINT: call "
      "UnitGraph::backward once, with a loss of the latest forward"));
}

}  // namespace strata::hooks
