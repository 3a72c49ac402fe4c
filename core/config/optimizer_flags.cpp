#include "strata/config/optimizer_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "strata/base/text.h"
#include "strata/config/numbers.h"

namespace strata::config {
namespace {

constexpr double kSmallestNormType = 0.1;

// What has a choice uses of the flags that not all of its kind do.
struct Choice {
  std::string name;
  std::vector<std::string> flags;
};

const std::vector<Choice>& optimizers() {
  static const std::vector<Choice> choices = {
      {"adamw", {"adam-beta1", "adam-beta2", "adam-epsilon"}},
      {"adam", {"adam-beta1", "adam-beta2", "adam-epsilon"}},
      {"sgd", {"momentum", "nesterov"}},
      {"adagrad", {"adam-epsilon"}},
      {"lion", {"adam-beta1", "adam-beta2"}},
      {"adafactor",
       {"adafactor-relative-step", "adafactor-warmup-init", "adafactor-scale-parameter",
        "adafactor-clip-threshold", "adafactor-decay-rate"}},
      {"lamb", {"adam-beta1", "adam-beta2", "adam-epsilon"}},
  };
  return choices;
}

const std::vector<Choice>& schedules() {
  static const std::vector<Choice> choices = {
      {"linear", {}},
      {"cosine", {}},
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"polynomial", {"lr-end", "lr-power"}},
      {"inverse_sqrt", {"lr-timescale"}},
      {"exponential", {"lr-gamma"}},
      {"wsd", {"lr-decay-steps", "lr-decay-type", "min-lr-ratio"}},
      {"WarmupLR", {"warmup-type", "warmup-min-lr"}},
  };
  return choices;
}

std::vector<std::string> names_of(const std::vector<Choice>& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) names.push_back(choice.name);
  return names;
}

bool uses(const Choice& choice, const std::string& flag) {
  return std::ranges::count(choice.flags, flag) > 0;
}

// On the command line, or in the file with another value than the default.
bool is_meant(const Flag& flag) {
  return flag.source() == Source::kCommandLine || (flag.is_given() && !flag.has_default_value());
}

// A flag of `choices` that the chosen one does not use.
void check_unused(FlagSet& flags, const std::vector<Choice>& choices, const std::string& flag_name,
                  const std::string& chosen, Mistakes& mistakes) {
  const auto found = std::ranges::find(choices, chosen, &Choice::name);
  if (found == choices.end()) return;  // a mistake of its own
  std::vector<std::string> done;
  for (const Choice& choice : choices) {
    for (const std::string& name : choice.flags) {
      if (uses(*found, name) || std::ranges::count(done, name) > 0) continue;
      done.push_back(name);
      if (!is_meant(flags.at(name))) continue;
      std::vector<std::string> users;
      for (const Choice& other : choices) {
        if (uses(other, name)) users.push_back(other.name);
      }
      mistakes.add(fmt::format("--{}: is not used with --{} {}, but with {}", name, flag_name,
                               chosen, text::join(users)));
    }
  }
}

void fill_own_defaults(FlagSet& flags, OptimizerConfig& c) {
  if (c.optim == "lion" && !flags.at("adam-beta2").is_given()) c.adam_beta2 = 0.99;
  if (c.optim == "adagrad" && !flags.at("adam-epsilon").is_given()) c.adam_epsilon = 1e-10;
}

void check_adafactor(FlagSet& flags, const OptimizerConfig& c, Mistakes& mistakes) {
  if (c.adafactor_warmup_init && !c.adafactor_relative_step) {
    mistakes.add("--adafactor-warmup-init: needs --adafactor-relative-step");
  }
  if (!c.adafactor_relative_step) return;
  for (const char* name : {"learning-rate", "lr-scheduler-type", "warmup-steps", "warmup-ratio"}) {
    if (!is_meant(flags.at(name))) continue;
    mistakes.add(fmt::format(
        "--{}: is not used with --adafactor-relative-step, which computes the rate from the step",
        name));
  }
}

void check_schedule(FlagSet& flags, const OptimizerConfig& c, std::optional<int64_t> max_steps,
                    Mistakes& mistakes) {
  check_unused(flags, schedules(), "lr-scheduler-type", c.lr_scheduler_type, mistakes);
  if (c.lr_scheduler_type == "exponential" && !c.lr_gamma) {
    mistakes.add("--lr-scheduler-type exponential: needs --lr-gamma X, the factor of each step");
  }
  if (c.lr_scheduler_type == "polynomial" && c.lr_end > c.learning_rate) {
    mistakes.add(
        fmt::format("--lr-end {}: is above --learning-rate {}", c.lr_end, c.learning_rate));
  }
  if (c.lr_scheduler_type == "WarmupLR" && c.warmup_min_lr > c.learning_rate) {
    mistakes.add(fmt::format("--warmup-min-lr {}: is above --learning-rate {}", c.warmup_min_lr,
                             c.learning_rate));
  }
  if (max_steps && c.warmup_steps > *max_steps) {
    mistakes.add(
        fmt::format("--warmup-steps {}: are more than --max-steps {}", c.warmup_steps, *max_steps));
  }
  if (c.lr_scheduler_type == "wsd" && max_steps && c.lr_decay_steps &&
      c.warmup_steps + *c.lr_decay_steps > *max_steps) {
    mistakes.add(
        fmt::format("--lr-decay-steps {} behind --warmup-steps {}: are more than "
                    "--max-steps {}",
                    *c.lr_decay_steps, c.warmup_steps, *max_steps));
  }
}

void check_warmup(FlagSet& flags, OptimizerConfig& c, Mistakes& mistakes) {
  if (c.warmup_steps == 0 || c.warmup_ratio == 0) return;
  Flag& steps = flags.at("warmup-steps");
  Flag& ratio = flags.at("warmup-ratio");
  if (steps.source() == ratio.source()) {
    mistakes.add(
        fmt::format("--warmup-steps {} and --warmup-ratio {} exclude each other: each says "
                    "how long the warm-up is",
                    c.warmup_steps, c.warmup_ratio));
  } else {
    (steps.source() == Source::kFile ? steps : ratio).reset();
  }
}

// By norm or by value: a limit of the file gives way to the other one of the command line.
void check_clipping(FlagSet& flags, OptimizerConfig& c, Mistakes& mistakes) {
  const Result<double> type = parse_norm_type(c.grad_norm_type);
  if (!type.ok()) {
    mistakes.add(fmt::format("--grad-norm-type {}: {}", c.grad_norm_type, type.status().message()));
  }
  if (!c.clip_grad_value) return;
  const Flag& norm = flags.at("max-grad-norm");
  Flag& value = flags.at("clip-grad-value");
  if (!norm.is_given() || c.max_grad_norm == 0) {
    c.max_grad_norm = 0;
  } else if (norm.source() == value.source()) {
    mistakes.add(
        fmt::format("--max-grad-norm {} and --clip-grad-value {} exclude each other: gradients "
                    "are clipped by norm or by value",
                    c.max_grad_norm, *c.clip_grad_value));
  } else if (norm.source() == Source::kFile) {
    c.max_grad_norm = 0;
  } else {
    value.reset();
  }
}

void declare_update(FlagSet& flags, OptimizerConfig& c) {
  flags.group("Optimizer");
  flags.add("optim", &c.optim, "NAME", "optimizer")
      .one_of(optimizer_names())
      .alias("adamw_torch", "adamw")
      .alias("adamw_torch_fused", "adamw")
      .alias("lion_32bit", "lion");
  flags.add("learning-rate", &c.learning_rate, "X", "peak learning rate").at_least(0);
  flags
      .add("weight-decay", &c.weight_decay, "X",
           "weight decay of parameters of two or more dimensions; in the gradient (L2) for adam, "
           "sgd and adagrad, else decoupled")
      .at_least(0);
  flags.add("adam-beta1", &c.adam_beta1, "X", "decay of the first moment").at_least(0).below(1);
  flags.add("adam-beta2", &c.adam_beta2, "X", "decay of the second moment")
      .at_least(0)
      .below(1)
      .default_words("0.999, lion 0.99");
  flags.add("adam-epsilon", &c.adam_epsilon, "X", "added to the denominator")
      .above(0)
      .default_words("1e-08, adagrad 1e-10");
  flags.add("momentum", &c.momentum, "X", "of sgd").at_least(0).below(1);
  flags.add("nesterov", &c.nesterov, "", "look ahead along the momentum");
  flags.add("adafactor-relative-step", &c.adafactor_relative_step, "",
            "learning rate min(1e-2, 1 / sqrt(step)) instead of --learning-rate");
  flags.add("adafactor-warmup-init", &c.adafactor_warmup_init, "",
            "begin the relative step with 1e-6 a step");
  flags.add("adafactor-scale-parameter", &c.adafactor_scale_parameter, "",
            "multiply the rate by the root mean square of the parameter");
  flags
      .add("adafactor-clip-threshold", &c.adafactor_clip_threshold, "X",
           "largest root mean square of an update")
      .above(0);
  flags
      .add("adafactor-decay-rate", &c.adafactor_decay_rate, "X",
           "the second moment's decay in step t is 1 - t^X")
      .below(0);
  flags.add("param-group", &c.param_group, "REGEX:lr=X,weight_decay=X",
            "parameters whose name has a match get this multiple of the learning rate and this "
            "weight decay; the first match wins");
}

void declare_schedule(FlagSet& flags, OptimizerConfig& c) {
  flags.group("Learning rate");
  flags.add("lr-scheduler-type", &c.lr_scheduler_type, "NAME", "learning rate after warm-up")
      .one_of(names_of(schedules()))
      .alias("warmup_stable_decay", "wsd");
  flags.add("warmup-steps", &c.warmup_steps, "N", "steps of warm-up").at_least(0);
  flags.add("warmup-ratio", &c.warmup_ratio, "X", "warm-up as a part of all steps")
      .at_least(0)
      .at_most(1);
  flags.add("warmup-type", &c.warmup_type, "NAME", "warm-up of WarmupLR").one_of({"linear", "log"});
  flags.add("warmup-min-lr", &c.warmup_min_lr, "X", "rate at the start of WarmupLR").at_least(0);
  flags.add("lr-end", &c.lr_end, "X", "rate at the end of polynomial").at_least(0);
  flags.add("lr-power", &c.lr_power, "X", "power of polynomial").above(0);
  flags.add("lr-gamma", &c.lr_gamma, "X", "factor of each step of exponential").above(0).at_most(1);
  flags.add("lr-timescale", &c.lr_timescale, "N", "steps of inverse_sqrt")
      .at_least(1)
      .default_words("the warm-up, or 10000 without one");
  flags.add("lr-decay-steps", &c.lr_decay_steps, "N", "last steps, in which wsd decays")
      .at_least(0)
      .default_words("a tenth of all steps");
  flags.add("lr-decay-type", &c.lr_decay_type, "NAME", "decay of wsd")
      .one_of({"cosine", "linear", "1-sqrt"});
  flags.add("min-lr-ratio", &c.min_lr_ratio, "X", "end of wsd, as a part of the peak")
      .at_least(0)
      .at_most(1);
}

void declare_clipping(FlagSet& flags, OptimizerConfig& c) {
  flags.group("Clipping");
  flags.add("max-grad-norm", &c.max_grad_norm, "X", "clip gradients to this global norm; 0: do not")
      .at_least(0);
  flags.add("grad-norm-type", &c.grad_norm_type, "P",
            "p of that norm and of the norm in the log: 1, 2, 3, any number from 0.1 on, or inf");
  flags
      .add("clip-grad-value", &c.clip_grad_value, "X",
           "clip each element of the gradient to [-X, X], instead of the norm")
      .above(0);
  flags
      .add("on-nonfinite", &c.on_nonfinite, "NAME",
           "what to do when loss or gradients are NaN or infinite")
      .one_of({"stop", "skip"});
  flags
      .add("max-nonfinite-skips", &c.max_nonfinite_skips, "N",
           "steps skipped in a row before the run stops")
      .at_least(1);
}

}  // namespace

std::vector<std::string> optimizer_names() { return names_of(optimizers()); }

void declare_optimizer(FlagSet& flags, OptimizerConfig& c) {
  declare_update(flags, c);
  declare_schedule(flags, c);
  declare_clipping(flags, c);
}

void check_optimizer(FlagSet& flags, OptimizerConfig& c, std::optional<int64_t> max_steps,
                     Mistakes& mistakes) {
  check_unused(flags, optimizers(), "optim", c.optim, mistakes);
  fill_own_defaults(flags, c);
  if (c.optim == "sgd" && c.nesterov && c.momentum == 0) {
    mistakes.add("--nesterov: needs --momentum above 0");
  }
  if (c.optim == "adafactor") check_adafactor(flags, c, mistakes);
  check_warmup(flags, c, mistakes);
  check_schedule(flags, c, max_steps, mistakes);
  check_clipping(flags, c, mistakes);
  if (is_meant(flags.at("max-nonfinite-skips")) && c.on_nonfinite != "skip") {
    mistakes.add("--max-nonfinite-skips: needs --on-nonfinite skip");
  }
  for (const std::string& text : c.param_group) {
    const Result<ParamGroup> group = parse_param_group(text);
    if (!group.ok()) {
      mistakes.add(fmt::format("--param-group '{}': {}", text, group.status().message()));
    }
  }
}

std::vector<std::string> optimizer_arguments(const OptimizerConfig& config) {
  OptimizerConfig wanted = config;
  OptimizerConfig defaults;
  FlagSet flags("", "");
  FlagSet default_flags("", "");
  declare_optimizer(flags, wanted);
  declare_optimizer(default_flags, defaults);
  std::vector<std::string> args;
  for (const Flag& flag : flags.flags()) {
    if (flag.is_list()) continue;
    std::string value = flag.toml();
    if (value == default_flags.at(flag.name()).toml()) continue;
    if (!flag.is_number() && !flag.is_switch()) value = value.substr(1, value.size() - 2);
    args.push_back(fmt::format("--{}={}", flag.name(), value));
  }
  for (const std::string& group : config.param_group)
    args.push_back(fmt::format("--param-group={}", group));
  return args;
}

Result<ParamGroup> parse_param_group(const std::string& text) {
  constexpr const char* kForm = "is not REGEX:lr=X,weight_decay=X";
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return invalid_argument(kForm);
  ParamGroup group;
  group.pattern = text.substr(0, colon);
  std::vector<std::string> seen;
  for (const std::string& item : text::split(text.substr(colon + 1), ',')) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (equals == std::string::npos) return invalid_argument(kForm);
    if (key != "lr" && key != "weight_decay") {
      const std::vector<std::string> known = {"lr", "weight_decay"};
      const std::string near = text::nearest(key, known);
      return invalid_argument(
          fmt::format("has the unknown key '{}'{}; known are lr, weight_decay", key,
                      near.empty() ? "" : fmt::format(", did you mean '{}'?", near)));
    }
    if (std::ranges::count(seen, key) > 0) {
      return invalid_argument(fmt::format("has '{}' twice", key));
    }
    seen.push_back(key);
    const std::string number = item.substr(equals + 1);
    const Result<double> value = parse_real(number);
    if (!value.ok()) {
      return invalid_argument(fmt::format("{} = {}: {}", key, number, value.status().message()));
    }
    if (*value < 0)
      return invalid_argument(fmt::format("{} = {}: must be at least 0", key, number));
    if (key == "lr") {
      group.lr_multiplier = *value;
    } else {
      group.weight_decay = *value;
    }
  }
  return group;
}

Result<double> parse_norm_type(const std::string& text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  const Result<double> type = parse_real(text);
  if (!type.ok()) return invalid_argument(fmt::format("{}, nor inf", type.status().message()));
  if (*type < kSmallestNormType) {
    return invalid_argument(fmt::format("must be at least {}", kSmallestNormType));
  }
  return *type;
}

}  // namespace strata::config
