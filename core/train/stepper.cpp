#include "strata/train/stepper.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <vector>

#include "strata/optim/nonfinite.h"

namespace strata::train {

Stepper::Stepper(strategy::Session& session, device::Host& host, zoo::Model& model,
                 optim::Optimizer& optimizer, const StepperOptions& options)
    : session_(session),
      host_(host),
      model_(model),
      optimizer_(optimizer),
      options_(options),
      reducer_(session) {}

void Stepper::begin_scale() {
  const bool is_scaled = options_.loss_scale != nullptr || options_.fixed_loss_scale.has_value();
  loss_scale_ = options_.loss_scale != nullptr ? options_.loss_scale->scale()
                                               : options_.fixed_loss_scale.value_or(1);
  const auto tokens = static_cast<uint64_t>(options_.micro_batch_tokens);
  multiplier_ = is_scaled ? loss_scale_ / static_cast<double>(std::bit_ceil(tokens)) : 1;
}

Result<StepResult> Stepper::step(std::span<const zoo::Batch> micro_batches, double learning_rate) {
  double loss_sum = 0;
  int64_t tokens = 0;
  begin_scale();
  host_.take_sent_bytes();
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const auto forward = [&](hooks::UnitRunner& runner) {
      zoo::Batch batch = micro_batches[i];
      batch.loss_scale = multiplier_;
      zoo::LossOutput out = model_.forward_loss(batch, runner);
      loss_sum += out.loss_sum.item<double>();
      tokens += out.label_tokens;
      return multiplier_ == 1 ? out.loss_sum : out.loss_sum * multiplier_;
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
  const double divisor = static_cast<double>(result.tokens) * multiplier_;
  return optimizer_.step(
      learning_rate, optim::gradient_scale(options_.clipping, result.grad_norm, divisor), reducer_);
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
  result.grad_norm = norm / (static_cast<double>(tokens) * multiplier_);
  result.loss_scale = loss_scale_;
  result.is_skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  STRATA_RETURN_IF_ERROR(check_nonfinite(result));
  return result;
}

Status Stepper::check_nonfinite(StepResult& result) {
  optim::LossScale* scale = options_.loss_scale;
  const bool is_at_minimum =
      scale != nullptr && scale->update(result.is_skipped) == optim::LossScale::Outcome::kAtMinimum;
  if (!result.is_skipped || (scale != nullptr && !is_at_minimum)) return {};
  STRATA_ASSIGN_OR_RETURN(result.nonfinite, nonfinite_parameters());
  if (is_at_minimum) {
    return internal_error(fmt::format(
        "train: gradients overflow at loss scale {}, the smallest (--min-loss-scale {}): loss {}, "
        "not finite in the gradients of {}; weights are as before this step. HINT: --precision "
        "bf16-mixed, a smaller --learning-rate, or longer --warmup-steps",
        loss_scale_, scale->options().min_scale, result.loss, result.nonfinite));
  }
  if (options_.skips_nonfinite) return {};
  return internal_error(fmt::format(
      "train: loss {} and gradient norm {} are not finite, in the gradients of {}; weights are as "
      "before this step. HINT: a smaller --learning-rate, longer --warmup-steps, --max-grad-norm "
      "1, or --on-nonfinite skip",
      result.loss, result.grad_norm, result.nonfinite));
}

Result<std::string> Stepper::nonfinite_parameters() {
  std::vector<model::FlatLayout> layouts;
  for (const model::UnitStorage* unit : session_.units()) layouts.push_back(unit->layout());
  std::vector<int64_t> marks =
      optim::mark_nonfinite_gradients(session_.spec(), layouts, session_.partitions());
  STRATA_RETURN_IF_ERROR(reducer_.sum(marks));
  return optim::marked_parameters(session_.spec(), marks);
}

}  // namespace strata::train
