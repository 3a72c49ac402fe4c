#include "strata/train/tables.h"

#include <fmt/format.h>

#include <cmath>

#include "strata/base/text.h"

namespace strata::train {
namespace {

int64_t parameters_of(const model::ModelSpec& spec) {
  int64_t sum = 0;
  for (const model::UnitSpec& unit : spec.units) {
    for (const model::ParameterSpec& parameter : unit.parameters) sum += parameter.numel();
  }
  return sum;
}

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<22}{}\n", name, value);
}

}  // namespace

std::string start_table(const StartTable& t, const model::ModelSpec& spec,
                        const device::MemoryStats& memory) {
  const auto bytes = [&](int32_t tag) { return text::format_bytes(memory.used_of(tag)); };
  std::string out = t.message.empty() ? "" : t.message + "\n";
  out += line("strategy", fmt::format("{} ({})", t.strategy, t.plugin_path));
  out += line("world", fmt::format("{} rank{}", t.world_size, t.world_size == 1 ? "" : "s"));
  out += line("precision", t.precision);
  out += line("model", fmt::format("{} parameters in {} units, vocabulary {}", parameters_of(spec),
                                   spec.units.size(), t.vocab_size));
  out += line("bytes per rank",
              fmt::format("parameters {}, gradients {}, optimizer {}", bytes(STRATA_TAG_PARAMETERS),
                          bytes(STRATA_TAG_GRADIENTS), bytes(STRATA_TAG_OPTIMIZER)));
  out += line("data", fmt::format("{} tokens{}, unigram entropy {:.4f} nats", t.tokens,
                                  t.is_tokenizer_trained ? " (tokenizer trained on them)" : "",
                                  t.unigram_entropy));
  out += line("steps", fmt::format("{} of {} samples", t.steps, t.samples_per_step));
  return out;
}

std::string end_table(const Summary& s, const StartTable& t, const std::string& output_dir) {
  std::string out;
  if (!s.losses.empty()) {
    out +=
        line("loss", fmt::format("{:.4f} -> {:.4f} (ln(vocabulary) {:.4f}, unigram entropy of "
                                 "the text {:.4f})",
                                 s.losses.front(), s.final_loss,
                                 std::log(static_cast<double>(t.vocab_size)), t.unigram_entropy));
  }
  out += line("weights", s.weight_hash);
  out += line("time", fmt::format("{:.1f} s, first step after {:.1f} s", s.wall_s, s.first_step_s));
  out += line("files", output_dir);
  return out;
}

}  // namespace strata::train
