// The files of a byte-level BPE tokenizer in a Hugging Face folder.
#ifndef STRATA_DATA_BPE_FILES_H_
#define STRATA_DATA_BPE_FILES_H_

#include <string>

#include "strata/base/status.h"
#include "strata/data/bpe_tokenizer.h"

namespace strata::data {

// Reads a tokenizer.json.
//
// Returns unsupported when it asks for anything that would give other ids than GPT-2's scheme
// (another model, a normalizer, a prefix space, another split, ...): says what.
Result<BpeModel> read_tokenizer_json(const std::string& path);

// Reads vocab.json and merges.txt (encoder.json and vocab.bpe in OpenAI's spelling). <|endoftext|>
// is an added token; where the vocabulary does not have it, it gets the next id, as in
// transformers. Further added tokens come from an added_tokens.json beside them, if there is one.
Result<BpeModel> read_vocab_and_merges(const std::string& vocab_path,
                                       const std::string& merges_path);

// Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json into an existing folder;
// each is replaced whole.
Status write_bpe_files(const std::string& folder, const BpeModel& model);

}  // namespace strata::data

#endif  // STRATA_DATA_BPE_FILES_H_
