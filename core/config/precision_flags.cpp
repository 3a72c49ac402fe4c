#include "strata/config/precision_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "strata/base/text.h"

namespace strata::config {
namespace {

const std::vector<std::string> kPrecisions = {"32", "bf16-mixed", "bf16-true", "fp16-mixed"};
const std::vector<std::string> kDtypes = {"fp32", "bf16", "fp16"};

// Lightning Fabric's other names.
const std::map<std::string, std::string> kSpellings = {
    {"32-true", "32"}, {"bf16", "bf16-mixed"}, {"16-mixed", "fp16-mixed"}, {"16", "fp16-mixed"}};
const std::vector<std::string> kKnown = {"16-true", "fp16-true", "64", "64-true",
                                         "transformer-engine"};

constexpr const char* kDynamicFlags[] = {"init-scale",     "loss-scale-window",
                                         "hysteresis",     "consecutive-hysteresis",
                                         "min-loss-scale", "loss-scale-rule"};

bool is_asked_for(FlagSet& flags, const char* name) {
  const Flag& flag = flags.at(name);
  return flag.is_given() && !flag.has_default_value();
}

void refuse(FlagSet& flags, const char* name, const std::string& why, Mistakes& mistakes) {
  if (is_asked_for(flags, name)) mistakes.add(fmt::format("--{}: {}", name, why));
}

void check_dtypes(const std::string& precision, const PrecisionConfig& c, Mistakes& mistakes) {
  const std::pair<const char*, const std::string&> dtypes[] = {
      {"reduce-dtype", c.reduce_dtype},
      {"grad-accum-dtype", c.grad_accum_dtype},
      {"buffer-dtype", c.buffer_dtype}};
  for (const auto& [name, value] : dtypes) {
    if (value.empty() || std::ranges::count(kDtypes, value) > 0) continue;
    mistakes.add(
        fmt::format("--{} {}: unknown dtype; known are {}", name, value, text::join(kDtypes)));
    return;
  }
  // What attention kernels take.
  const std::string of_units = precision == "32" ? "fp32" : precision.substr(0, 4);
  if (c.buffer_dtype.empty() || c.buffer_dtype == "fp32" || c.buffer_dtype == of_units) return;
  mistakes.add(fmt::format("--buffer-dtype {}: with --precision {} it is fp32{}", c.buffer_dtype,
                           precision, of_units == "fp32" ? "" : " or " + of_units));
}

}  // namespace

void declare_precision(FlagSet& flags, PrecisionConfig& c) {
  flags.group("Precision");
  const char* with_true = "fp32, or bf16 with bf16-true";
  flags.add("reduce-dtype", &c.reduce_dtype, "DTYPE", "gradients on the wire: fp32, bf16, fp16")
      .default_words(with_true);
  flags
      .add("grad-accum-dtype", &c.grad_accum_dtype, "DTYPE",
           "gradients on a rank, where micro-batches add up: fp32, bf16, fp16")
      .default_words(with_true);
  flags
      .add("buffer-dtype", &c.buffer_dtype, "DTYPE",
           "tensors that are no parameters (attention masks): fp32, or that of the units")
      .default_words("that of the units");
  flags
      .add("loss-scale", &c.loss_scale, "X",
           "fp16-mixed: a fixed factor of the mean loss in backward; 0: a dynamic one")
      .at_least(0)
      .at_most(std::numeric_limits<float>::max());
  flags.add("init-scale", &c.init_scale, "X", "fp16-mixed: the dynamic loss scale at the start")
      .above(0)
      .at_most(std::numeric_limits<float>::max());
  flags
      .add("loss-scale-window", &c.loss_scale_window, "STEPS",
           "fp16-mixed: good steps in a row after which the loss scale doubles")
      .at_least(1);
  flags
      .add("hysteresis", &c.hysteresis, "N",
           "fp16-mixed: overflows, the one that halves the loss scale included")
      .at_least(1);
  flags.add("consecutive-hysteresis", &c.consecutive_hysteresis, "",
            "fp16-mixed: each good step restores --hysteresis, not only growth");
  flags
      .add("min-loss-scale", &c.min_loss_scale, "X",
           "fp16-mixed: an overflow at this loss scale ends the run")
      .above(0);
  flags
      .add("loss-scale-rule", &c.loss_scale_rule, "NAME",
           "fp16-mixed: how steps are counted, as deepspeed or torch does")
      .one_of({"deepspeed", "torch"});
}

void check_precision_name(std::string& precision, Mistakes& mistakes) {
  const auto spelling = kSpellings.find(precision);
  if (spelling != kSpellings.end()) precision = spelling->second;
  if (std::ranges::count(kPrecisions, precision) > 0) return;
  const bool is_known = std::ranges::count(kKnown, precision) > 0;
  mistakes.add(fmt::format("--precision {}: {}; supported are {}", precision,
                           is_known ? "is not supported yet" : "unknown precision",
                           text::join(kPrecisions)));
}

void check_precision(FlagSet& flags, const std::string& precision, const PrecisionConfig& c,
                     Mistakes& mistakes) {
  check_dtypes(precision, c, mistakes);
  if (precision != "fp16-mixed") {
    refuse(flags, "loss-scale", "is used by --precision fp16-mixed alone", mistakes);
    for (const char* name : kDynamicFlags) {
      refuse(flags, name, "is used by --precision fp16-mixed alone", mistakes);
    }
    return;
  }
  if (c.loss_scale > 0) {
    for (const char* name : kDynamicFlags) {
      refuse(flags, name, fmt::format("--loss-scale {} fixes the scale", c.loss_scale), mistakes);
    }
    return;
  }
  if (c.loss_scale_rule == "torch") {
    for (const char* name : {"hysteresis", "consecutive-hysteresis"}) {
      refuse(flags, name, "--loss-scale-rule torch has none", mistakes);
    }
  }
  if (c.init_scale < c.min_loss_scale) {
    mistakes.add(fmt::format("--init-scale {}: is less than --min-loss-scale {}", c.init_scale,
                             c.min_loss_scale));
  }
}

std::vector<std::string> precision_arguments(const std::string& precision,
                                             const PrecisionConfig& c) {
  std::vector<std::string> out = {"--precision", precision};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) out.insert(out.end(), {name, value});
  };
  add("--reduce-dtype", c.reduce_dtype);
  add("--grad-accum-dtype", c.grad_accum_dtype);
  add("--buffer-dtype", c.buffer_dtype);
  if (precision != "fp16-mixed") return out;
  if (c.loss_scale > 0) {
    add("--loss-scale", fmt::format("{}", c.loss_scale));
    return out;
  }
  add("--init-scale", fmt::format("{}", c.init_scale));
  add("--loss-scale-window", std::to_string(c.loss_scale_window));
  add("--min-loss-scale", fmt::format("{}", c.min_loss_scale));
  add("--loss-scale-rule", c.loss_scale_rule);
  if (c.loss_scale_rule == "torch") return out;
  add("--hysteresis", std::to_string(c.hysteresis));
  if (c.consecutive_hysteresis) out.emplace_back("--consecutive-hysteresis");
  return out;
}

}  // namespace strata::config
