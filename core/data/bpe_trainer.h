// Trains a byte-level BPE vocabulary on a text (Sennrich et al. 2016, on bytes as in GPT-2).
#ifndef STRATA_DATA_BPE_TRAINER_H_
#define STRATA_DATA_BPE_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "strata/base/status.h"
#include "strata/data/tokenizer.h"

namespace strata::data {

struct BpeTrainerOptions {
  int64_t vocab_size = 8192;  // ids in all: 256 bytes, merges, <|endoftext|> as the last id
  int64_t min_frequency = 2;  // a pair that is rarer is not merged
};

// Merges the most frequent pair until `vocab_size` is reached. Among equally frequent pairs the one
// with the smaller (left id, right id) comes first, as in the Hugging Face trainer: the same text
// gives the same files everywhere.
//
// Returns invalid_argument when vocab_size is below 257, or when the text is too short to give so
// many tokens (says how many it gives).
Result<std::unique_ptr<Tokenizer>> train_bpe(std::string_view text,
                                             const BpeTrainerOptions& options);

}  // namespace strata::data

#endif  // STRATA_DATA_BPE_TRAINER_H_
