#include "strata/train/stepper.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "strata/optim/norm.h"

namespace strata::train {

Stepper::Stepper(strategy::Session& session, device::Host& host, zoo::Model& model,
                 optim::AdamW& optimizer, double max_grad_norm)
    : session_(session),
      host_(host),
      model_(model),
      optimizer_(optimizer),
      max_grad_norm_(max_grad_norm) {}

Result<StepResult> Stepper::step(std::span<const zoo::Batch> micro_batches, double learning_rate) {
  double loss_sum = 0;
  int64_t tokens = 0;
  host_.take_sent_bytes();
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const auto forward = [&](hooks::UnitRunner& runner) {
      zoo::LossOutput out = model_.forward_loss(micro_batches[i], runner);
      loss_sum += out.loss_sum.item<double>();
      tokens += out.label_tokens;
      return out.loss_sum;
    };
    const bool is_last = i + 1 == micro_batches.size();
    STRATA_RETURN_IF_ERROR(session_.train_micro_batch(static_cast<int>(i), is_last, forward));
  }
  const uint64_t sent_bytes = host_.take_sent_bytes();
  STRATA_ASSIGN_OR_RETURN(StepResult result, reduce(loss_sum, tokens));
  host_.take_sent_bytes();
  STRATA_RETURN_IF_ERROR(session_.before_step());
  const double clip =
      max_grad_norm_ > 0 ? optim::clip_factor(result.grad_norm, max_grad_norm_) : 1.0;
  const double factor = clip / static_cast<double>(result.tokens);
  STRATA_RETURN_IF_ERROR(optimizer_.step(learning_rate, factor));
  STRATA_RETURN_IF_ERROR(session_.after_step(true));
  result.sent_bytes = sent_bytes + host_.take_sent_bytes();
  return result;
}

Result<StepResult> Stepper::reduce(double loss_sum, int64_t tokens) {
  optim::NormAccumulator norm;
  for (const model::Partition& partition : session_.partitions()) norm.add(partition);
  std::vector<int64_t> counts = norm.limbs();
  counts.push_back(tokens);
  STRATA_RETURN_IF_ERROR(session_.all_reduce(std::span<int64_t>(counts)));
  STRATA_RETURN_IF_ERROR(session_.all_reduce(std::span<double>(&loss_sum, 1)));
  const int64_t all_tokens = counts.back();
  counts.pop_back();
  if (all_tokens == 0) {
    return invalid_argument(
        "train: no sample of this step has a label token. HINT: are sequences of one token, or all "
        "labels -100?");
  }
  StepResult result;
  result.tokens = all_tokens;
  result.loss = loss_sum / static_cast<double>(all_tokens);
  result.grad_norm = optim::NormAccumulator::norm(counts) / static_cast<double>(all_tokens);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    return internal_error(fmt::format(
        "train: loss {} and gradient norm {} are not finite; weights are as before this step. "
        "HINT: a smaller --learning-rate, longer --warmup-steps, or --max-grad-norm 1",
        result.loss, result.grad_norm));
  }
  return result;
}

}  // namespace strata::train
