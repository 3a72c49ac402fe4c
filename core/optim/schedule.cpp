#include "strata/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata::optim {
namespace {

double cosine(double t) { return (1.0 + std::cos(std::numbers::pi * t)) / 2.0; }

// DeepSpeed's WarmupLR counts with at least two steps of warm-up.
double warmup_lr(const Schedule& s, double step) {
  const double warmup = static_cast<double>(std::max<int64_t>(s.warmup_steps, 2));
  if (step >= warmup) return s.learning_rate;
  const double part =
      s.warmup_type == "log" ? std::log(step + 1) / std::log(warmup) : step / warmup;
  return s.warmup_min + (s.learning_rate - s.warmup_min) * part;
}

double adafactor(const Schedule& s, double updates) {
  const double first = s.warmup_init ? 1e-6 * updates : 1e-2;
  return std::min(first, 1 / std::sqrt(updates));
}

double stable_then_decay(const Schedule& s, int64_t step) {
  const int64_t decay_begin = s.total_steps - s.decay_steps;
  if (step < decay_begin) return s.learning_rate;
  const double d =
      s.decay_steps == 0
          ? 1.0
          : std::min(static_cast<double>(step - decay_begin) / static_cast<double>(s.decay_steps),
                     1.0);
  const double f = s.decay_type == "linear"   ? 1 - d
                   : s.decay_type == "1-sqrt" ? 1 - std::sqrt(d)
                                              : cosine(d);
  return s.learning_rate * (s.min_ratio + (1 - s.min_ratio) * f);
}

double inverse_sqrt(const Schedule& s, double since_warmup) {
  int64_t timescale = s.timescale;
  if (timescale == 0) timescale = s.warmup_steps > 0 ? s.warmup_steps : 10'000;
  const auto scale = static_cast<double>(timescale);
  return s.learning_rate / std::sqrt((since_warmup + scale) / scale);
}

}  // namespace

double learning_rate(const Schedule& s, int64_t step) {
  if (s.kind == "WarmupLR") return warmup_lr(s, static_cast<double>(step));
  if (s.kind == "adafactor") return adafactor(s, static_cast<double>(step + 1));
  if (step < s.warmup_steps) {
    const double part = static_cast<double>(step) / static_cast<double>(s.warmup_steps);
    if (s.kind == "wsd") return s.learning_rate * (part * (1 - s.min_ratio) + s.min_ratio);
    return s.learning_rate * static_cast<double>(step) / static_cast<double>(s.warmup_steps);
  }
  const auto since_warmup = static_cast<double>(step - s.warmup_steps);
  const auto rest = static_cast<double>(std::max<int64_t>(s.total_steps - s.warmup_steps, 1));
  const double t = std::min(since_warmup / rest, 1.0);
  if (s.kind == "linear") return s.learning_rate * (1.0 - t);
  if (s.kind == "cosine") return s.learning_rate * cosine(t);
  if (s.kind == "polynomial") return s.end + (s.learning_rate - s.end) * std::pow(1 - t, s.power);
  if (s.kind == "inverse_sqrt") return inverse_sqrt(s, since_warmup);
  if (s.kind == "exponential") return s.learning_rate * std::pow(s.gamma, since_warmup);
  if (s.kind == "wsd") return stable_then_decay(s, step);
  return s.learning_rate;
}

Status check_schedule(const Schedule& s) {
  if (s.kind == "adafactor") return {};
  if (s.warmup_steps > s.total_steps) {
    return invalid_argument(
        fmt::format("schedule: {} steps of warm-up are more than the {} of the run. HINT: "
                    "--warmup-steps or --warmup-ratio",
                    s.warmup_steps, s.total_steps));
  }
  if (s.kind == "wsd" && s.warmup_steps + s.decay_steps > s.total_steps) {
    return invalid_argument(fmt::format(
        "schedule: wsd has {} steps of warm-up and {} of decay, more than the {} of the "
        "run. HINT: --lr-decay-steps",
        s.warmup_steps, s.decay_steps, s.total_steps));
  }
  if (s.kind == "polynomial" && s.end > s.learning_rate) {
    return invalid_argument(fmt::format(
        "schedule: polynomial ends at {}, above the rate {}. HINT: --lr-end below --learning-rate",
        s.end, s.learning_rate));
  }
  return {};
}

}  // namespace strata::optim
