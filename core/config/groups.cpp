#include "strata/config/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "strata/config/precision_flags.h"

namespace strata::config {
namespace {

constexpr int kMaxRanks = 4096;

}  // namespace

void declare_placement(FlagSet& flags, PlacementConfig& c) {
  flags.group("Strategy and placement");
  flags
      .add("strategy", &c.strategy, "NAME[:key=value,...]",
           "strategy, by name or by the path of its plugin")
      .default_words("single on one rank, ddp on several");
  flags.add("set", &c.set, "key=value", "option of the strategy");
  flags.add("plugin-path", &c.plugin_path, "FOLDER", "where to look for plugins first");
  flags.add("devices", &c.devices, "N", "ranks on this node").at_least(1).at_most(kMaxRanks);
  flags.add("num-nodes", &c.num_nodes, "N", "nodes; above 1 under torchrun, srun or mpirun")
      .at_least(1)
      .at_most(kMaxRanks);
  flags.add("precision", &c.precision, "NAME",
            "number format of computation: 32, bf16-mixed, bf16-true, fp16-mixed");
  flags.add("accelerator", &c.accelerator, "NAME", "kind of device: auto, cpu");
  declare_timeout(flags, c.timeout_s);
  flags.add("check-plugin", &c.check_plugin, "", "check each call of the plugin for the contract");
  flags.add("all-ranks-output", &c.all_ranks_output, "",
            "show the output of every rank, not of rank 0 alone");
}

void declare_timeout(FlagSet& flags, double& seconds) {
  flags.add("timeout", &seconds, "SECONDS", "deadline of every wait for another rank")
      .at_least(0.001)
      .at_most(1e6);
}

void declare_model(FlagSet& flags, std::string& model) {
  flags.group("Model and data");
  flags.add("model", &model, "FOLDER|CONFIG.json",
            "a Hugging Face folder, or a bare configuration for random weights");
}

void declare_data(FlagSet& flags, DataConfig& c) {
  flags.add("data", &c.data, "FILE", "text to train on").required();
  flags.add("tokenizer", &c.tokenizer, "FOLDER", "folder with tokenizer.json or vocab.json")
      .default_words("trained on the data");
  flags.add("vocab-size", &c.vocab_size, "N", "tokens of a tokenizer trained on the data")
      .at_least(257)
      .default_words("as in the model's configuration");
  flags.exclude("tokenizer", "vocab-size", "a tokenizer that is given has its own vocabulary");
}

void declare_sequence_length(FlagSet& flags, int64_t& value) {
  flags
      .add("sequence-length", &value, "TOKENS",
           "tokens of one sample; each but the last predicts the next")
      .at_least(2);
}

void declare_batch(FlagSet& flags, BatchConfig& c) {
  flags.group("Batch");
  flags
      .add("per-device-train-batch-size", &c.per_device_train_batch_size, "SAMPLES",
           "samples of one rank in one forward pass")
      .at_least(1);
  flags
      .add("gradient-accumulation-steps", &c.gradient_accumulation_steps, "N",
           "forward and backward passes before each update")
      .at_least(1);
  flags.add("activation-checkpointing", &c.activation_checkpointing, "",
            "keep the inputs of blocks only and compute again in backward");
}

void declare_seed(FlagSet& flags, int64_t& seed) {
  flags.add("seed", &seed, "N", "seed of all random numbers").at_least(0);
}

void check_placement(FlagSet& flags, PlacementConfig& c, Mistakes& mistakes) {
  c.devices_given = flags.at("devices").is_given();
  check_precision_name(c.precision, mistakes);
  if (c.accelerator != "auto" && c.accelerator != "cpu") {
    const bool is_known =
        std::ranges::count(std::vector<std::string>{"cuda", "gpu", "mps", "tpu", "rocm"},
                           c.accelerator) > 0;
    mistakes.add(fmt::format("--accelerator {}: {}; supported are auto, cpu", c.accelerator,
                             is_known ? "is not supported yet" : "unknown accelerator"));
  }
  if (int64_t{c.devices} * c.num_nodes > kMaxRanks) {
    mistakes.add(fmt::format("--devices {} on --num-nodes {}: {} ranks, more than {}", c.devices,
                             c.num_nodes, int64_t{c.devices} * c.num_nodes, kMaxRanks));
  }
  for (const std::string& option : c.set) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) {
      mistakes.add(fmt::format("--set {}: is not key=value", option));
    }
  }
}

void check_strategy(const PlacementConfig& c, Mistakes& mistakes) {
  if (c.strategy == kAutoStrategy && !c.set.empty()) {
    mistakes.add(fmt::format("--set {}: needs --strategy NAME", c.set.front()));
  }
}

}  // namespace strata::config
