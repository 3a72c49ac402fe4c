#include "strata/train/stepper.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace strata::train {

Stepper::Stepper(strategy::Session& session, device::Host& host, zoo::Model& model,
                 optim::Optimizer& optimizer, const StepperOptions& options)
    : session_(session),
      host_(host),
      model_(model),
      optimizer_(optimizer),
      options_(options),
      reducer_(session) {}

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
  uint64_t sent_bytes = host_.take_sent_bytes();
  STRATA_ASSIGN_OR_RETURN(StepResult result, reduce(loss_sum, tokens));
  host_.take_sent_bytes();
  STRATA_RETURN_IF_ERROR(session_.before_step());
  sent_bytes += host_.take_sent_bytes();
  if (!result.is_skipped) STRATA_RETURN_IF_ERROR(update(result, learning_rate));
  host_.take_sent_bytes();
  STRATA_RETURN_IF_ERROR(session_.after_step(!result.is_skipped));
  result.sent_bytes = sent_bytes + host_.take_sent_bytes();
  return result;
}

Status Stepper::update(const StepResult& result, double learning_rate) {
  const auto tokens = static_cast<double>(result.tokens);
  return optimizer_.step(
      learning_rate, optim::gradient_scale(options_.clipping, result.grad_norm, tokens), reducer_);
}

Result<StepResult> Stepper::reduce(double loss_sum, int64_t tokens) {
  STRATA_ASSIGN_OR_RETURN(const double norm,
                          optim::gradient_norm(session_.partitions(), options_.clipping.norm_type,
                                               std::span<int64_t>(&tokens, 1), reducer_));
  STRATA_RETURN_IF_ERROR(session_.all_reduce(std::span<double>(&loss_sum, 1)));
  if (tokens == 0) {
    return invalid_argument(
        "train: no sample of this step has a label token. HINT: are sequences of one token, or all "
        "labels -100?");
  }
  StepResult result;
  result.tokens = tokens;
  result.loss = loss_sum / static_cast<double>(tokens);
  result.grad_norm = norm / static_cast<double>(tokens);
  result.is_skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (result.is_skipped && !options_.skips_nonfinite) {
    return internal_error(fmt::format(
        "train: loss {} and gradient norm {} are not finite; weights are as before this step. "
        "HINT: a smaller --learning-rate, longer --warmup-steps, --max-grad-norm 1, or "
        "--on-nonfinite skip",
        result.loss, result.grad_norm));
  }
  return result;
}

}  // namespace strata::train
