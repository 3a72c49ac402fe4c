// A text as a sequence of equally long blocks of token ids.
//
// The text is tokenised once, when it is loaded, and kept as 4 bytes a token. Block i is tokens
// [i * sequence_length, (i + 1) * sequence_length); the rest that fills no block is dropped. Labels
// are the same ids: the model shifts them by one, as in Hugging Face's GPT-2.
#ifndef STRATA_DATA_TEXT_DATASET_H_
#define STRATA_DATA_TEXT_DATASET_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/status.h"
#include "strata/data/tokenizer.h"

namespace strata::data {

// The text of a UTF-8 file, or of all *.txt of a folder (one by one, sorted by name).
//
// Returns not_found (missing), invalid_argument (empty, folder without .txt, not UTF-8: the offset
// of the first wrong byte is in the message), io_error (unreadable).
Result<std::vector<std::string>> read_texts(const std::string& path);

// Tokenises on up to `threads` threads when the text is long; the ids do not depend on that.
std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text,
                                 int threads = 2);

class TextDataset {
 public:
  // Reads and tokenises `path` (see read_texts). The texts of a folder are joined, each but the
  // last followed by the tokenizer's end id where it has one.
  //
  // Returns the errors of read_texts(), and invalid_argument when sequence_length < 1 or the text
  // has fewer tokens than one block.
  static Result<TextDataset> load(const std::string& path, const Tokenizer& tokenizer,
                                  int64_t sequence_length, int threads = 2);

  // From ids; `name` stands for the path in messages.
  static Result<TextDataset> from_ids(std::vector<int32_t> ids, int64_t sequence_length,
                                      const std::string& name);

  // Number of blocks.
  int64_t size() const { return static_cast<int64_t>(ids_.size()) / sequence_length_; }
  int64_t sequence_length() const { return sequence_length_; }

  // Copies block `index` into `out`.
  //
  // REQUIRES: 0 <= index < size(), out.size() == sequence_length().
  void fill(int64_t index, std::span<int64_t> out) const;

  // Of the whole text, also of the part that fills no block.
  int64_t token_count() const { return static_cast<int64_t>(ids_.size()); }
  std::span<const int32_t> tokens() const { return ids_; }
  int32_t largest_id() const;

  // Entropy of the token frequencies in nats: the loss of the best model that ignores context.
  double unigram_entropy() const;

 private:
  TextDataset(std::vector<int32_t> ids, int64_t sequence_length)
      : ids_(std::move(ids)), sequence_length_(sequence_length) {}

  std::vector<int32_t> ids_;
  int64_t sequence_length_;
};

}  // namespace strata::data

#endif  // STRATA_DATA_TEXT_DATASET_H_
