// Every command's flags, declared once, and what can be checked without opening a file.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "strata/base/text.h"
#include "strata/config/config.h"
#include "strata/config/flags.h"
#include "strata/config/groups.h"
#include "strata/config/optimizer_flags.h"
#include "strata/config/precision_flags.h"

namespace strata::config {
namespace {

// One command: its flags, how they are read, and what is checked afterwards.
template <typename Config>
using Check = void (*)(FlagSet&, Config&, Mistakes&);

template <typename Config>
Result<Command> read(FlagSet flags, Config& config, const std::vector<std::string>& args,
                     Check<Config> check) {
  const auto end = std::find(args.begin(), args.end(), "--");
  if (std::any_of(args.begin(), end, [](auto& a) { return a == "--help" || a == "-h"; })) {
    return Command(ShowText{flags.help()});
  }
  Mistakes mistakes;
  STRATA_RETURN_IF_ERROR(parse_flags(flags, args, mistakes).with_context(flags.command()));
  if (check != nullptr) check(flags, config, mistakes);
  STRATA_RETURN_IF_ERROR(mistakes.status(flags.command()));
  return Command(std::move(config));
}

// ---- train ----

FlagSet train_flags(TrainConfig& c) {
  FlagSet flags("strata train", "Trains a model with a strategy loaded from a plugin.");
  flags.add("config", &c.config, "FILE.toml", "read flags from this file; the command line wins")
      .only_on_command_line();
  declare_model(flags, c.model);
  flags.at("model").required();
  declare_data(flags, c.data);
  declare_sequence_length(flags, c.data.sequence_length);
  declare_placement(flags, c.placement);
  declare_precision(flags, c.precision);
  declare_batch(flags, c.batch);
  declare_optimizer(flags, c.optimizer);
  flags.group("Length of the run");
  flags.add("max-steps", &c.max_steps, "N", "updates to do").at_least(1);
  flags.add("num-train-epochs", &c.num_train_epochs, "X", "passes over the data")
      .above(0)
      .at_most(1e6)
      .default_words("3 without --max-steps");
  flags.exclude("max-steps", "num-train-epochs", "each says how long to train");
  declare_seed(flags, c.seed);
  flags.group("Output");
  flags.add("output-dir", &c.output_dir, "FOLDER", "gets metrics, summary and checkpoints");
  flags.add("logging-steps", &c.logging_steps, "N", "steps between lines of metrics.jsonl")
      .at_least(1);
  flags.add("save-steps", &c.save_steps, "N", "steps between checkpoints; 0: only at the end")
      .at_least(0);
  flags.add("save-total-limit", &c.save_total_limit, "N", "checkpoints to keep")
      .at_least(1)
      .at_most(1'000'000)
      .default_words("all");
  flags.add("resume-from-checkpoint", &c.resume_from_checkpoint, "FOLDER|latest",
            "go on from this checkpoint, or from the newest in --output-dir");
  flags.add("no-progress", &c.no_progress, "", "no progress line");
  flags
      .add("show-param-groups", &c.show_param_groups, "",
           "print every parameter's group, learning rate and weight decay, and end")
      .only_on_command_line();
  return flags;
}

void check_train(FlagSet& flags, TrainConfig& c, Mistakes& mistakes) {
  check_placement(flags, c.placement, mistakes);
  check_precision(flags, c.placement.precision, c.precision, mistakes);
  check_strategy(c.placement, mistakes);
  if (!c.max_steps && !c.num_train_epochs) c.num_train_epochs = 3;
  check_optimizer(flags, c.optimizer, c.max_steps, mistakes);
  if (c.resume_from_checkpoint == "latest") c.resume_from_checkpoint = c.output_dir + "/latest";
}

// ---- generate, export ----

FlagSet generate_flags(GenerateConfig& c) {
  FlagSet flags("strata generate", "Continues a prompt with a trained model.");
  declare_model(flags, c.model);
  flags.add("checkpoint", &c.checkpoint, "FOLDER", "a checkpoint of a run");
  flags.exclude("model", "checkpoint", "each names the weights");
  flags.add("tokenizer", &c.tokenizer, "FOLDER", "folder with tokenizer.json or vocab.json")
      .default_words("the one of the checkpoint or model");
  flags.group("Generation");
  flags.add("prompt", &c.prompt, "TEXT", "text to go on from").required();
  flags.add("max-new-tokens", &c.max_new_tokens, "N", "tokens to generate").at_least(1);
  flags.add("greedy", &c.greedy, "", "always take the most likely token");
  flags.add("temperature", &c.temperature, "X", "divides the logits").at_least(0.001);
  flags.add("top-k", &c.top_k, "N", "sample from the N most likely tokens; 0: from all")
      .at_least(0);
  flags.add("top-p", &c.top_p, "X", "sample from the fewest tokens that have this probability")
      .above(0)
      .at_most(1);
  for (const char* sampling : {"temperature", "top-k", "top-p"}) {
    flags.exclude("greedy", sampling, "greedy generation does not sample");
  }
  declare_seed(flags, c.seed);
  declare_placement(flags, c.placement);
  return flags;
}

void check_generate(FlagSet& flags, GenerateConfig& c, Mistakes& mistakes) {
  check_placement(flags, c.placement, mistakes);
  check_strategy(c.placement, mistakes);
  if (c.model.empty() && c.checkpoint.empty()) {
    mistakes.add("--checkpoint FOLDER or --model FOLDER: is required");
  }
}

FlagSet export_flags(ExportConfig& c) {
  FlagSet flags("strata export", "Writes a checkpoint as a Hugging Face folder.");
  flags.add("checkpoint", &c.checkpoint, "FOLDER", "a checkpoint of a run").required();
  flags
      .add("output-dir", &c.output_dir, "FOLDER",
           "gets config.json, model.safetensors and the tokenizer")
      .required();
  return flags;
}

// ---- bench ----

FlagSet bench_step_flags(BenchStepConfig& c) {
  FlagSet flags("strata bench step", "Measures a training step on made-up tokens.");
  declare_model(flags, c.model);
  flags.at("model").required();
  declare_sequence_length(flags, c.sequence_length);
  declare_placement(flags, c.placement);
  declare_precision(flags, c.precision);
  declare_batch(flags, c.batch);
  declare_optimizer(flags, c.optimizer);
  flags.group("Measuring");
  flags.add("max-steps", &c.max_steps, "N", "steps to measure").at_least(1);
  flags.add("skip-steps", &c.skip_steps, "N", "steps before that").at_least(0);
  declare_seed(flags, c.seed);
  flags
      .add("link-bandwidth", Bytes{&c.link_bandwidth}, "SIZE",
           "play a link of so many bytes a second between the ranks; 0: do not")
      .default_words("0");
  flags.add("output", &c.output, "FILE.json", "write the numbers there, too");
  flags.add("trace-dir", &c.trace_dir, "FOLDER",
            "gets trace.rank<N>.json of the last step, in Chrome's format");
  return flags;
}

FlagSet bench_comm_flags(BenchCommConfig& c) {
  FlagSet flags("strata bench comm", "Measures the collectives that strategies use.");
  c.placement.devices = 2;
  flags.group("Measuring");
  flags.add("min-bytes", Bytes{&c.min_bytes}, "SIZE", "smallest message").at_least(4);
  flags.add("max-bytes", Bytes{&c.max_bytes}, "SIZE", "largest message")
      .at_least(4)
      .at_most(0x1p36);
  flags.add("repetitions", &c.repetitions, "N", "measurements of each size").at_least(1);
  flags.add("output", &c.output, "FILE.json", "write the numbers there, too");
  declare_placement(flags, c.placement);
  return flags;
}

void check_bench_comm(FlagSet& flags, BenchCommConfig& c, Mistakes& mistakes) {
  check_placement(flags, c.placement, mistakes);
  check_strategy(c.placement, mistakes);
  if (c.placement.precision != "32") {
    mistakes.add(
        fmt::format("--precision {}: collectives are measured in fp32", c.placement.precision));
  }
  if (c.min_bytes > c.max_bytes) {
    mistakes.add(
        fmt::format("--min-bytes {}: is more than --max-bytes {}", c.min_bytes, c.max_bytes));
  }
}

FlagSet bench_startup_flags(BenchStartupConfig& c) {
  FlagSet flags("strata bench startup", "Measures the time from the command to the first step.");
  declare_model(flags, c.model);
  flags.at("model").required();
  declare_sequence_length(flags, c.sequence_length);
  declare_placement(flags, c.placement);
  declare_precision(flags, c.precision);
  declare_batch(flags, c.batch);
  flags.group("Measuring");
  flags.add("repetitions", &c.repetitions, "N", "starts to measure").at_least(1);
  flags.add("output", &c.output, "FILE.json", "write the numbers there, too");
  return flags;
}

template <typename Config>
void check_placement_only(FlagSet& flags, Config& c, Mistakes& mistakes) {
  check_placement(flags, c.placement, mistakes);
  check_precision(flags, c.placement.precision, c.precision, mistakes);
  check_strategy(c.placement, mistakes);
}

void check_bench_step(FlagSet& flags, BenchStepConfig& c, Mistakes& mistakes) {
  check_placement_only(flags, c, mistakes);
  check_optimizer(flags, c.optimizer, c.skip_steps + c.max_steps, mistakes);
}

FlagSet bench_strategies_flags(BenchStrategiesConfig& c, std::string& strategies) {
  FlagSet flags("strata bench strategies",
                "Runs the same steps under several strategies and compares memory and loss.");
  strategies = text::join(c.strategies, ",");
  declare_model(flags, c.model);
  flags.at("model").required();
  declare_data(flags, c.data);
  declare_sequence_length(flags, c.data.sequence_length);
  flags.group("Comparing");
  flags.add("strategies", &strategies, "NAME,...", "strategies to compare");
  flags.add("global-batch-size", &c.global_batch_size, "SAMPLES", "samples of all ranks together")
      .at_least(1);
  flags.add("max-steps", &c.max_steps, "N", "updates under each strategy").at_least(1);
  declare_seed(flags, c.seed);
  flags.add("output-dir", &c.output_dir, "FOLDER", "gets one run a strategy");
  c.placement.devices = 2;
  declare_placement(flags, c.placement);
  declare_precision(flags, c.precision);
  declare_optimizer(flags, c.optimizer);
  return flags;
}

// "single,fsdp:a=1,b=2,ddp" -> single | fsdp:a=1,b=2 | ddp
std::vector<std::string> split_strategies(const std::string& list) {
  std::vector<std::string> out;
  for (const std::string& part : text::split(list, ',')) {
    const bool is_option = part.find('=') != std::string::npos && part.find(':') > part.find('=');
    if (is_option && !out.empty()) {
      out.back() += "," + part;
    } else {
      out.push_back(part);
    }
  }
  return out;
}

Result<Command> read_bench_strategies(const std::vector<std::string>& args) {
  BenchStrategiesConfig config;
  std::string strategies;
  FlagSet flags = bench_strategies_flags(config, strategies);
  auto command = read<BenchStrategiesConfig>(
      std::move(flags), config, args, [](FlagSet& f, BenchStrategiesConfig& c, Mistakes& m) {
        check_placement(f, c.placement, m);
        check_optimizer(f, c.optimizer, c.max_steps, m);
        check_precision(f, c.placement.precision, c.precision, m);
        for (const char* unused : {"strategy", "set"}) {
          if (f.at(unused).is_given()) {
            m.add(
                fmt::format("--{}: is not used here, --strategies NAME:key=value,... is", unused));
          }
        }
        if (c.global_batch_size % c.placement.world_size() != 0) {
          m.add(fmt::format("--global-batch-size {}: does not divide by {} ranks",
                            c.global_batch_size, c.placement.world_size()));
        }
      });
  if (command.ok()) {
    if (auto* made = std::get_if<BenchStrategiesConfig>(&*command)) {
      made->strategies = split_strategies(strategies);
    }
  }
  return command;
}

// ---- plugins, doctor ----

Result<Command> read_plugins_list(const std::vector<std::string>& args) {
  PluginsListConfig config;
  FlagSet flags("strata plugins list", "Lists installed plugins and what they can do.");
  flags.add("plugin-path", &config.plugin_path, "FOLDER", "where to look for plugins first");
  return read<PluginsListConfig>(std::move(flags), config, args, nullptr);
}

Result<Command> read_plugins_info(const std::vector<std::string>& args) {
  PluginsInfoConfig config;
  FlagSet flags("strata plugins info", "Says what one plugin is and can do.");
  flags.positional("FILE", &config.file, "the plugin, or the name of a strategy");
  return read<PluginsInfoConfig>(std::move(flags), config, args, nullptr);
}

Result<Command> read_plugins_check(const std::vector<std::string>& args) {
  PluginsCheckConfig config;
  FlagSet flags("strata plugins check", "Runs a plugin and checks that it keeps the contract.");
  flags.positional("FILE", &config.file, "the plugin, or the name of a strategy");
  flags.add("devices", &config.devices, "N", "ranks to run it on").at_least(1).at_most(64);
  declare_timeout(flags, config.timeout_s);
  return read<PluginsCheckConfig>(std::move(flags), config, args, nullptr);
}

Result<Command> read_doctor(const std::vector<std::string>& args) {
  DoctorConfig config;
  FlagSet flags("strata doctor", "Looks at this machine and says what would stop a run.");
  flags.add("plugin-path", &config.plugin_path, "FOLDER", "where to look for plugins first");
  return read<DoctorConfig>(std::move(flags), config, args, nullptr);
}

Result<Command> read_train(const std::vector<std::string>& args) {
  TrainConfig config;
  return read<TrainConfig>(train_flags(config), config, args, check_train);
}

Result<Command> read_generate(const std::vector<std::string>& args) {
  GenerateConfig config;
  return read<GenerateConfig>(generate_flags(config), config, args, check_generate);
}

Result<Command> read_export(const std::vector<std::string>& args) {
  ExportConfig config;
  return read<ExportConfig>(export_flags(config), config, args, nullptr);
}

Result<Command> read_bench_step(const std::vector<std::string>& args) {
  BenchStepConfig config;
  return read<BenchStepConfig>(bench_step_flags(config), config, args, check_bench_step);
}

Result<Command> read_bench_comm(const std::vector<std::string>& args) {
  BenchCommConfig config;
  return read<BenchCommConfig>(bench_comm_flags(config), config, args, check_bench_comm);
}

Result<Command> read_bench_startup(const std::vector<std::string>& args) {
  BenchStartupConfig config;
  return read<BenchStartupConfig>(bench_startup_flags(config), config, args,
                                  check_placement_only<BenchStartupConfig>);
}

struct CommandEntry {
  const char* name;  // one or two words
  const char* summary;
  Result<Command> (*read)(const std::vector<std::string>& args);
};
constexpr CommandEntry kCommands[] = {
    {"train", "train a model", read_train},
    {"generate", "continue a prompt", read_generate},
    {"export", "write a checkpoint as a Hugging Face folder", read_export},
    {"bench step", "time of a training step", read_bench_step},
    {"bench comm", "speed of collectives", read_bench_comm},
    {"bench startup", "time to the first step", read_bench_startup},
    {"bench strategies", "memory, traffic and loss of several strategies", read_bench_strategies},
    {"plugins list", "installed plugins", read_plugins_list},
    {"plugins info", "what one plugin can do", read_plugins_info},
    {"plugins check", "does a plugin keep the contract", read_plugins_check},
    {"doctor", "does this machine have what a run needs", read_doctor},
};

std::string overview() {
  std::string out = "Trains LibTorch models with a parallelism strategy loaded from a plugin.\n\n";
  out += "Usage: strata COMMAND [flags]\n\n";
  for (const CommandEntry& entry : kCommands) {
    out += fmt::format("  {:<18}{}\n", entry.name, entry.summary);
  }
  return out + "\nstrata COMMAND --help lists the flags of a command.\n";
}

// The commands of one family: "bench step, bench comm".
Status unknown_command(const std::string& given, const std::string& family) {
  std::vector<std::string> known;
  for (const CommandEntry& entry : kCommands) {
    if (family.empty() || std::string_view(entry.name).starts_with(family + " ")) {
      known.emplace_back(entry.name);
    }
  }
  const std::string near = text::nearest(given, known);
  return invalid_argument(fmt::format(
      "strata: {}. HINT: {}known are {}",
      given == family && !family.empty() ? fmt::format("'{}' needs another word", family)
                                         : fmt::format("unknown command '{}'", given),
      near.empty() || given == family ? "" : fmt::format("did you mean '{}'? ", near),
      text::join(known)));
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

}  // namespace

Result<Command> parse_command(std::span<const std::string> args) {
  if (args.empty()) {
    return invalid_argument("strata: no command. HINT: strata --help lists the commands");
  }
  if (is_help(args[0]) && args.size() == 1) return Command(ShowText{overview()});
  if (is_help(args[0])) {
    std::vector<std::string> turned(args.begin() + 1, args.end());
    turned.emplace_back("--help");
    return parse_command(turned);
  }
  if (args[0] == "--version") return Command(ShowText{"strata " STRATA_VERSION "\n"});
  bool is_family = false;
  for (const CommandEntry& entry : kCommands) {
    const std::vector<std::string> words = text::split(entry.name, ' ');
    is_family = is_family || (words.size() == 2 && words[0] == args[0]);
    if (args.size() < words.size() || !std::equal(words.begin(), words.end(), args.begin())) {
      continue;
    }
    return entry.read({args.begin() + static_cast<ptrdiff_t>(words.size()), args.end()});
  }
  if (!is_family) return unknown_command(args[0], "");
  if (args.size() > 1 && is_help(args[1])) return Command(ShowText{overview()});
  return unknown_command(args.size() > 1 ? args[0] + " " + args[1] : args[0], args[0]);
}

Result<Command> parse_command(int argc, const char* const* argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return parse_command(args);
}

std::string effective_config(const TrainConfig& config) {
  TrainConfig copy = config;
  return train_flags(copy).to_toml();
}

}  // namespace strata::config
