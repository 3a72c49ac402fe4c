// strata generate: continues a prompt with the weights of a checkpoint or a Hugging Face folder,
// under any strategy.
#include "strata/zoo/generate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/strata/command.h"
#include "strata/checkpoint/checkpoint.h"
#include "strata/data/tokenizer.h"
#include "strata/strategy/session.h"
#include "strata/train/precision.h"
#include "strata/train/saving.h"
#include "strata/zoo/weights.h"

namespace strata::apps {
namespace {

// What is read before ranks talk to each other.
struct Loaded {
  std::unique_ptr<zoo::Model> model;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::optional<checkpoint::Reader> checkpoint;
  std::optional<plugin::ResolvedStrategy> strategy;
  at::Tensor prompt;  // (1, T)
};

Status check_prompt(const config::GenerateConfig& config, const zoo::Model& model,
                    const std::vector<int32_t>& ids) {
  const int64_t positions = model.max_positions();
  const auto length = static_cast<int64_t>(ids.size());
  // The last new token is not fed back.
  if (length > positions || config.max_new_tokens - 1 > positions - length) {
    return invalid_argument(fmt::format(
        "generate: a prompt of {} tokens and --max-new-tokens {} need more than the model's {} "
        "positions. HINT: {}",
        length, config.max_new_tokens, positions,
        length > positions ? fmt::format("a prompt of at most {} tokens", positions)
                           : fmt::format("--max-new-tokens {}", positions - length + 1)));
  }
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || *largest < model.vocab_size()) return {};
  return invalid_argument(
      fmt::format("generate: the prompt has token id {}, the model a vocabulary of {}. HINT: give "
                  "the tokenizer that belongs to the model",
                  *largest, model.vocab_size()));
}

Status load(const config::GenerateConfig& config, const config::PlacementConfig& placement,
            const train::Rank& rank, Loaded& out) {
  const std::string folder = config.checkpoint.empty() ? config.model : config.checkpoint;
  if (!config.checkpoint.empty()) {
    STRATA_ASSIGN_OR_RETURN(out.checkpoint, checkpoint::Reader::open(folder));
  } else if (!std::filesystem::is_directory(folder)) {
    return invalid_argument(
        fmt::format("generate: --model '{}' is no folder. HINT: a folder with config.json and "
                    "model.safetensors",
                    folder));
  }
  STRATA_ASSIGN_OR_RETURN(out.model, zoo::load_model(folder));
  if (config.checkpoint.empty()) {
    STRATA_RETURN_IF_ERROR(zoo::WeightFiles::open(folder, *out.model).status());
  }
  STRATA_ASSIGN_OR_RETURN(
      out.tokenizer, data::load_tokenizer(config.tokenizer.empty() ? folder : config.tokenizer));
  const std::vector<int32_t> ids = out.tokenizer->encode(config.prompt);
  STRATA_RETURN_IF_ERROR(check_prompt(config, *out.model, ids));
  out.prompt = at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
  plugin::StrategyNeeds needs;
  needs.world_size = static_cast<uint32_t>(rank.world.size);
  needs.infers = true;
  const train::Precision precision = train::make_precision(placement.precision);
  needs.compute_dtype = precision.units.compute;
  needs.reduce_dtype = precision.units.reduce;
  needs.accumulate_dtype = precision.units.accumulate;
  needs.has_tied_units = out.model->spec().order.size() > out.model->spec().units.size();
  STRATA_ASSIGN_OR_RETURN(out.strategy, train::resolve_strategy(placement, needs));
  return {};
}

zoo::GenerateOptions options_of(const config::GenerateConfig& config, const Loaded& loaded) {
  zoo::GenerateOptions options;
  options.max_new_tokens = config.max_new_tokens;
  options.greedy = config.greedy;
  options.temperature = config.temperature;
  options.top_k = config.top_k;
  options.top_p = config.top_p;
  options.seed = static_cast<uint64_t>(config.seed);
  options.stop = loaded.tokenizer->end_id();
  options.pad = options.stop.value_or(0);
  options.usable_vocabulary = std::min(loaded.tokenizer->vocab_size(), loaded.model->vocab_size());
  return options;
}

// One rank's part, from reading to text.
class Generation {
 public:
  Generation(const config::GenerateConfig& config, const train::Rank& rank)
      : config_(config), placement_(with_strategy(config.placement, rank.world)), rank_(rank) {}

  int operator()() {
    const Status loaded = train::agree(rank_, "load", load(config_, placement_, rank_, loaded_),
                                       placement_.timeout_s);
    if (!loaded.ok()) return exit_code_of(loaded, false);
    const auto text = generate();
    if (!text.ok()) {
      if (session_ != nullptr) session_->abort(text.status().message());
      return exit_code_of(text.status(), true);
    }
    if (rank_.is_first()) std::fputs((*text + "\n").c_str(), stdout);
    return kExitDone;
  }

 private:
  Result<std::string> generate() {
    zoo::Model& model = *loaded_.model;
    STRATA_ASSIGN_OR_RETURN(host_, train::make_host(rank_, placement_));
    STRATA_ASSIGN_OR_RETURN(
        plugin::StrategyInstance instance,
        plugin::StrategyInstance::create(*loaded_.strategy, rank_.world, {STRATA_DEVICE_CPU, 0},
                                         host_->abi(), placement_.check_plugin));
    const train::Precision precision = train::make_precision(placement_.precision);
    STRATA_ASSIGN_OR_RETURN(
        session_, strategy::Session::attach(std::move(instance), *host_,
                                            train::with_dtypes(model.spec(), precision.units)));
    model.bind_units(session_->units());
    STRATA_RETURN_IF_ERROR(loaded_.checkpoint
                               ? train::load_weights(*loaded_.checkpoint, *session_)
                               : train::initialize_weights(*session_, model, config_.model, 0));
    STRATA_ASSIGN_OR_RETURN(const at::Tensor made,
                            zoo::generate(model, loaded_.prompt, {}, options_of(config_, loaded_),
                                          [&](const auto& body) { return session_->infer(body); }));
    STRATA_RETURN_IF_ERROR(session_->detach());
    std::vector<int32_t> ids(static_cast<size_t>(made.size(1)));
    std::copy_n(made.const_data_ptr<int64_t>(), ids.size(), ids.begin());
    const std::optional<int32_t> end = loaded_.tokenizer->end_id();
    if (end && ids.back() == *end) ids.pop_back();
    return loaded_.tokenizer->decode(ids);
  }

  const config::GenerateConfig& config_;
  const config::PlacementConfig placement_;
  const train::Rank& rank_;
  Loaded loaded_;
  std::unique_ptr<device::Host> host_;
  std::unique_ptr<strategy::Session> session_;
};

}  // namespace

int run(const config::GenerateConfig& config) {
  return run_on_ranks(config.placement,
                      [&](const train::Rank& rank) { return Generation(config, rank)(); });
}

}  // namespace strata::apps
