#include "strata/train/workload.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "strata/data/bpe_trainer.h"
#include "strata/formats/file.h"

namespace strata::train {
namespace {

bool has_tokenizer(const std::string& folder) {
  return std::filesystem::exists(folder + "/tokenizer.json") ||
         std::filesystem::exists(folder + "/vocab.json");
}

// --tokenizer, else the model folder's own, else one trained on the data.
Status load_or_train_tokenizer(const config::TrainConfig& config, Workload& workload) {
  std::string folder = config.data.tokenizer;
  if (folder.empty() && std::filesystem::is_directory(config.model) &&
      has_tokenizer(config.model)) {
    folder = config.model;
  }
  if (!folder.empty()) {
    STRATA_ASSIGN_OR_RETURN(workload.tokenizer, data::load_tokenizer(folder));
    return {};
  }
  data::BpeTrainerOptions options;
  options.vocab_size = config.data.vocab_size.value_or(workload.model->vocab_size());
  STRATA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, data::read_texts(config.data.data));
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += "<|endoftext|>";  // no word spans two files
    all += text;
  }
  STRATA_ASSIGN_OR_RETURN(workload.tokenizer, data::train_bpe(all, options));
  workload.is_tokenizer_trained = true;
  return {};
}

Status check_sizes(const config::TrainConfig& config, const Workload& workload) {
  const int64_t positions = workload.model->max_positions();
  if (config.data.sequence_length > positions) {
    return invalid_argument(
        fmt::format("train: --sequence-length {} is longer than the model's {} positions. HINT: "
                    "--sequence-length {}",
                    config.data.sequence_length, positions, positions));
  }
  if (workload.tokenizer->vocab_size() > workload.model->vocab_size()) {
    return invalid_argument(
        fmt::format("train: the tokenizer has {} tokens, the model's vocabulary {}: ids from {} on "
                    "have no embedding. HINT: give the tokenizer that belongs to the model, or set "
                    "vocab_size in its configuration",
                    workload.tokenizer->vocab_size(), workload.model->vocab_size(),
                    workload.model->vocab_size()));
  }
  return {};
}

}  // namespace

Result<Workload> load_workload(const config::TrainConfig& config, const Rank& rank) {
  Workload workload;
  STRATA_ASSIGN_OR_RETURN(workload.model, zoo::load_model(config.model));
  if (std::filesystem::is_directory(config.model)) workload.weights = config.model;
  STRATA_RETURN_IF_ERROR(load_or_train_tokenizer(config, workload));
  STRATA_RETURN_IF_ERROR(check_sizes(config, workload));
  STRATA_ASSIGN_OR_RETURN(
      workload.dataset,
      data::TextDataset::load(config.data.data, *workload.tokenizer, config.data.sequence_length));
  data::SamplerOptions options;
  options.size = workload.dataset->size();
  options.world = rank.world.size;
  options.rank = rank.world.rank;
  options.batch = config.batch.per_device_train_batch_size;
  options.accumulation = config.batch.gradient_accumulation_steps;
  options.seed = static_cast<uint64_t>(config.seed);
  STRATA_ASSIGN_OR_RETURN(workload.sampler, data::DistributedSampler::create(options));
  const double epochs = config.num_train_epochs.value_or(0);
  workload.max_steps = config.max_steps.value_or(static_cast<int64_t>(
      std::ceil(epochs * static_cast<double>(workload.sampler->steps_per_epoch()))));
  if (config.optimizer.warmup_steps > workload.max_steps) {
    return invalid_argument(fmt::format(
        "train: --warmup-steps {}: are more than the {} steps of --num-train-epochs {}. HINT: at "
        "most --warmup-steps {}",
        config.optimizer.warmup_steps, workload.max_steps, epochs, workload.max_steps));
  }
  return workload;
}

zoo::Batch make_batch(const Workload& workload, int64_t micro, int64_t rows) {
  std::vector<int64_t> samples(static_cast<size_t>(rows));
  workload.sampler->micro_batch(micro, samples);
  const int64_t length = workload.dataset->sequence_length();
  zoo::Batch batch;
  batch.input_ids = at::empty({rows, length}, at::kLong);
  auto* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  for (size_t row = 0; row < samples.size(); ++row) {
    const std::span<int64_t> out(ids + static_cast<int64_t>(row) * length,
                                 static_cast<size_t>(length));
    workload.dataset->fill(samples[row], out);
  }
  batch.labels = batch.input_ids;
  return batch;
}

}  // namespace strata::train
