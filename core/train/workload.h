// What a run trains and on what: model, tokenizer, data set, sampler; loaded and held against each
// other before anything is written.
#ifndef STRATA_TRAIN_WORKLOAD_H_
#define STRATA_TRAIN_WORKLOAD_H_

#include <memory>
#include <optional>
#include <string>

#include "strata/base/status.h"
#include "strata/config/config.h"
#include "strata/data/sampler.h"
#include "strata/data/text_dataset.h"
#include "strata/data/tokenizer.h"
#include "strata/train/rank.h"
#include "strata/zoo/model.h"

namespace strata::train {

struct Workload {
  std::unique_ptr<zoo::Model> model;
  std::string weights;  // the folder with the weights, or "" for random ones
  std::unique_ptr<data::Tokenizer> tokenizer;
  bool is_tokenizer_trained = false;  // on this data, just now
  std::optional<data::TextDataset> dataset;
  std::optional<data::DistributedSampler> sampler;
  int64_t max_steps = 0;
};

// [local]. The same on every rank but for the sampler. Errors are one message each, with values
// and a hint.
Result<Workload> load_workload(const config::TrainConfig& config, const Rank& rank);

// This rank's micro-batch `micro` of the sampler's current step.
zoo::Batch make_batch(const Workload& workload, int64_t micro, int64_t rows);

}  // namespace strata::train

#endif  // STRATA_TRAIN_WORKLOAD_H_
