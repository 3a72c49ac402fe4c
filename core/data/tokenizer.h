// A tokenizer: text to ids and back.
#ifndef STRATA_DATA_TOKENIZER_H_
#define STRATA_DATA_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/status.h"

namespace strata::data {

// All functions are const and may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Largest id + 1. A model's vocabulary must be at least as large.
  virtual int64_t vocab_size() const = 0;

  // Appends the ids of `text` to `ids`. Adds no special token of its own; names of special tokens
  // in the text become their one id. The text may hold any bytes.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }

  // The bytes behind `ids`; special tokens by their names.
  //
  // Returns invalid_argument for an id outside of the vocabulary (id and place in the message).
  virtual Result<std::string> decode_bytes(std::span<const int32_t> ids) const = 0;
  // As decode_bytes(), but UTF-8: each broken character becomes U+FFFD.
  Result<std::string> decode(std::span<const int32_t> ids) const;

  // The id that ends a text, for example of <|endoftext|>.
  virtual std::optional<int32_t> end_id() const = 0;

  // Whether a text may be cut before a whitespace that follows ASCII other than whitespace, so
  // that the ids of both parts, one after the other, are the ids of the whole.
  virtual bool can_cut_at_whitespace() const = 0;

  // Writes the files from which load_tokenizer() makes the same tokenizer into an existing folder.
  virtual Status save(const std::string& folder) const = 0;
};

// Loads the tokenizer of a Hugging Face folder: byte-level BPE from tokenizer.json, or from
// vocab.json and merges.txt.
//
// Returns not_found (none of these files; says what is looked for), unsupported (a tokenizer.json
// that asks for something else; says what), invalid_argument (broken files).
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder);

}  // namespace strata::data

#endif  // STRATA_DATA_TOKENIZER_H_
