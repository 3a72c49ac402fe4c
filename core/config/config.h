// What a user asks for, command by command: plain structs, composed, and the one function that
// makes them from a command line.
//
// Every flag is declared once (commands.cpp): its name, place, range, unit and words. Parsing,
// --help, the config file and effective_config() all come from that declaration. The command line
// wins over --config FILE, which wins over defaults. Names and defaults are those of the Hugging
// Face Trainer and of Lightning Fabric where these have one.
#ifndef STRATA_CONFIG_CONFIG_H_
#define STRATA_CONFIG_CONFIG_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "strata/base/status.h"

namespace strata::config {

// The user named no strategy.
inline constexpr const char* kAutoStrategy = "auto";

// Which ranks there are and what they run under.
struct PlacementConfig {
  // "NAME[:key=value,...]", a plugin's path, or kAutoStrategy: the program chooses when it knows
  // the world.
  std::string strategy = kAutoStrategy;
  std::vector<std::string> set;          // "key=value" for the strategy, each key once
  std::vector<std::string> plugin_path;  // folders, in the order given
  int devices = 1;                       // ranks on this node
  bool devices_given = false;            // by the user; else a launcher such as torchrun decides
  int num_nodes = 1;
  std::string precision = "32";      // 32, bf16-mixed, bf16-true, fp16-mixed
  std::string accelerator = "auto";  // auto, cpu
  double timeout_s = 600;            // deadline of every wait for a peer
  bool check_plugin = false;         // wrap the plugin and check that it keeps the contract
  bool all_ranks_output = false;     // show the output of all ranks, not of rank 0 alone

  int world_size() const { return devices * num_nodes; }
};

struct DataConfig {
  std::string tokenizer;  // a folder; "" trains one on the data
  std::string data;       // a text file
  int64_t sequence_length = 128;
  std::optional<int64_t> vocab_size;  // of the tokenizer to train; unset: the model's
};

struct BatchConfig {
  int64_t per_device_train_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  bool activation_checkpointing = false;
};

// What of --precision can be chosen apart. Dtypes are "fp32", "bf16", "fp16"; "" where the user
// said nothing and the precision decides.
struct PrecisionConfig {
  std::string reduce_dtype;      // gradients on the wire
  std::string grad_accum_dtype;  // gradients on a rank
  std::string buffer_dtype;      // attention masks
  // Of fp16-mixed.
  double loss_scale = 0;  // 0: dynamic
  double init_scale = 65536;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  std::string loss_scale_rule = "deepspeed";  // or "torch"
};

// The optimizer, its parameter groups, its schedule, and clipping. Defaults of epsilon and beta2
// that an optimizer has of its own are filled in by the command line.
struct OptimizerConfig {
  std::string optim = "adamw";
  double learning_rate = 5e-5;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double momentum = 0;
  bool nesterov = false;
  bool adafactor_relative_step = false;
  bool adafactor_warmup_init = false;
  bool adafactor_scale_parameter = false;
  double adafactor_clip_threshold = 1;
  double adafactor_decay_rate = -0.8;
  std::vector<std::string> param_group;  // "REGEX:lr=X,weight_decay=X", the first match wins

  std::string lr_scheduler_type = "linear";
  int64_t warmup_steps = 0;
  double warmup_ratio = 0;  // of all steps; 0: warmup_steps decides
  std::string warmup_type = "linear";
  double warmup_min_lr = 0;
  double lr_end = 1e-7;
  double lr_power = 1;
  std::optional<double> lr_gamma;
  std::optional<int64_t> lr_timescale;    // unset: warmup_steps, or 10000 without warm-up
  std::optional<int64_t> lr_decay_steps;  // unset: a tenth of all steps
  std::string lr_decay_type = "cosine";
  double min_lr_ratio = 0;

  double max_grad_norm = 1;           // 0: no clipping by norm
  std::string grad_norm_type = "2";   // a number of at least 0.1, or "inf"
  std::optional<double> clip_grad_value;   // clipping by value instead
  std::string on_nonfinite = "stop";  // or "skip"
  int64_t max_nonfinite_skips = 10;   // in a row
};

struct TrainConfig {
  std::string model;  // a folder of Hugging Face's layout, or a bare configuration (random weights)
  DataConfig data;
  PlacementConfig placement;
  BatchConfig batch;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  std::optional<int64_t> max_steps;        // exactly one of these two is set after parsing
  std::optional<double> num_train_epochs;  // 3 if the user gives neither
  int64_t seed = 42;
  std::string output_dir = "runs/train";
  int64_t logging_steps = 10;
  int64_t save_steps = 500;                 // 0: only at the end
  std::optional<int64_t> save_total_limit;  // unset: keep all
  std::string resume_from_checkpoint;       // a folder, or ""; "latest" became OUTPUT_DIR/latest
  bool no_progress = false;
  bool show_param_groups = false;  // print them and end
  std::string config;              // the file that was read, or ""
};

struct GenerateConfig {
  std::string checkpoint;  // exactly one of these two
  std::string model;
  std::string tokenizer;  // "": the folder of the checkpoint or model
  std::string prompt;
  int64_t max_new_tokens = 50;
  bool greedy = false;
  double temperature = 1;
  int64_t top_k = 50;  // 0: all
  double top_p = 1;
  int64_t seed = 42;
  PlacementConfig placement;
};

struct ExportConfig {
  std::string checkpoint;
  std::string output_dir;  // gets config.json, model.safetensors and the tokenizer
};

// `strata bench step`: the median time of a training step on made-up tokens.
struct BenchStepConfig {
  std::string model;
  int64_t sequence_length = 128;
  BatchConfig batch{.per_device_train_batch_size = 4};
  PlacementConfig placement;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  int64_t max_steps = 20;
  int64_t skip_steps = 3;  // first ones that are not measured
  int64_t seed = 42;
  uint64_t link_bandwidth = 0;  // bytes a second of each rank's played link; 0: none is played
  std::string output;           // a JSON file, or ""
  std::string trace_dir;        // a folder for the trace of the last step, or ""
};

// `strata bench comm`: collectives from min_bytes to max_bytes.
struct BenchCommConfig {
  PlacementConfig placement;  // devices defaults to 2
  uint64_t min_bytes = 1024;
  uint64_t max_bytes = 64 << 20;
  int64_t repetitions = 20;
  std::string output;
};

// `strata bench startup`: from the start of the command to the end of the first step.
struct BenchStartupConfig {
  std::string model;
  int64_t sequence_length = 128;
  BatchConfig batch{.per_device_train_batch_size = 4};
  PlacementConfig placement;
  PrecisionConfig precision;
  int64_t repetitions = 5;
  std::string output;
};

// `strata bench strategies`: the same steps under several strategies, and a table of memory,
// traffic and loss.
struct BenchStrategiesConfig {
  std::string model;
  DataConfig data;
  PlacementConfig placement;  // its strategy is unused
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  std::vector<std::string> strategies = {"single", "ddp", "fsdp"};
  int64_t global_batch_size = 8;  // divides by the ranks
  int64_t max_steps = 20;
  int64_t seed = 42;
  std::string output_dir = "runs/compare";
};

struct PluginsListConfig {
  std::vector<std::string> plugin_path;
};
struct PluginsInfoConfig {
  std::string file;
};
struct PluginsCheckConfig {
  std::string file;
  int devices = 2;
  double timeout_s = 60;
};
struct DoctorConfig {
  std::vector<std::string> plugin_path;
};

// --help, --version: print this on stdout and end with exit code 0.
struct ShowText {
  std::string text;
};

using Command =
    std::variant<ShowText, TrainConfig, GenerateConfig, ExportConfig, BenchStepConfig,
                 BenchCommConfig, BenchStartupConfig, BenchStrategiesConfig, PluginsListConfig,
                 PluginsInfoConfig, PluginsCheckConfig, DoctorConfig>;

// Makes a command from the arguments after the program's name, reading the file of --config.
//
// Names may be written with '_' for '-'. Values that hang together are made whole: `strategy`,
// `max_steps` against `num_train_epochs`, `resume_from_checkpoint`. Whether files exist and what a
// strategy's options mean is checked by those who open them.
//
// Returns   kInvalidArgument  one report of every mistake: unknown flags and keys with the nearest
// known name, values that are
//                             no numbers or out of range, flags that exclude each other, flags that
//                             are missing; what is known but not supported yet (a precision, an
//                             accelerator)
//           kIo, kNotFound    the file of --config cannot be read
Result<Command> parse_command(std::span<const std::string> args);
Result<Command> parse_command(int argc, const char* const* argv);

// The configuration that a run has, as a file that --config takes: every value that is set,
// grouped. For the run's folder and for rank 0 to print once.
std::string effective_config(const TrainConfig& config);

}  // namespace strata::config

#endif  // STRATA_CONFIG_CONFIG_H_
