// Weights and state between a run and its files: initialising, loading, checkpoints, the weight
// hash.
#ifndef STRATA_TRAIN_SAVING_H_
#define STRATA_TRAIN_SAVING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/checkpoint/checkpoint.h"
#include "strata/config/config.h"
#include "strata/optim/loss_scale.h"
#include "strata/optim/optimizer.h"
#include "strata/strategy/session.h"
#include "strata/train/metrics.h"
#include "strata/train/rank.h"
#include "strata/train/workload.h"

namespace strata::train {

// Random numbers of a step (dropout) depend on (seed, rank, step) alone, so that a resumed run
// draws the same.
void seed_step(uint64_t seed, int rank, int64_t step);

// Fills all units from a Hugging Face folder, or randomly from `seed` if `weights` is "".
// [collective]
Status initialize_weights(strategy::Session& session, zoo::Model& model, const std::string& weights,
                          uint64_t seed);

struct SavePoint {
  std::string output_dir;
  int64_t step = 0;
  std::string strategy;                          // for the record
  const optim::LossScale* loss_scale = nullptr;  // null: none
  int keep = 0;                                  // newest checkpoints to keep; 0: all
};

// All ranks write, rank 0 commits. A number that is not finite is never written: the error names
// unit and kind. On error nothing is left and earlier checkpoints are unharmed. [collective]
Status save_checkpoint(const SavePoint& point, const Rank& rank, double timeout_s,
                       strategy::Session& session, const optim::Optimizer& optimizer,
                       const Workload& workload);

// What lies beside the weights: config.json, generation_config.json, the tokenizer's files. The end
// token in them is the tokenizer's, at which `strata generate` stops, so that Hugging Face's
// libraries stop there, too. [local]
Status write_companions(const std::string& folder, const zoo::Model& model,
                        const data::Tokenizer& tokenizer);

struct ResumePoint {
  int64_t step = 0;  // done
};

// A checkpoint goes on with the optimizer that wrote it. [local]
//
// Returns  kInvalidArgument  both names
Status check_same_optimizer(const checkpoint::Reader& reader, const std::string& name);

// Masters, states of the optimizer and the sampler's position from a checkpoint of any strategy and
// world size. [collective]
//
// Returns  kInvalidArgument  a checkpoint of another optimizer, or of one with other states, or
// that is
//                            damaged
Result<ResumePoint> restore(const checkpoint::Reader& reader, strategy::Session& session,
                            optim::Optimizer& optimizer, data::DistributedSampler& sampler);

// The loss scale's state, if the checkpoint has one: a run that had none goes on with a fresh one.
Status restore_loss_scale(const checkpoint::Reader& reader, optim::LossScale& loss_scale);

// Masters alone, for generation and export. [collective]
Status load_weights(const checkpoint::Reader& reader, strategy::Session& session);

// XXH3-64 of the bytes of all fp32 parameters in name order, 16 hex digits; the same on every rank.
// [collective]
Result<std::string> weight_hash(strategy::Session& session);

// Every rank's summary, by rank. [collective]
Result<std::vector<RankSummary>> gather_summaries(strategy::Session& session, const World& world,
                                                  const RankSummary& mine);

}  // namespace strata::train

#endif  // STRATA_TRAIN_SAVING_H_
