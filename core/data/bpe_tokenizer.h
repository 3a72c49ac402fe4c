// Byte-level BPE as in GPT-2 (Radford et al. 2019): split into words, merge bytes within a word.
#ifndef STRATA_DATA_BPE_TOKENIZER_H_
#define STRATA_DATA_BPE_TOKENIZER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/base/status.h"
#include "strata/data/bpe_merger.h"
#include "strata/data/tokenizer.h"

namespace strata::data {

// A token that stands whole in the text and is never split or merged.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool is_special = true;
};

// What the files of a tokenizer say.
struct BpeModel {
  // The bytes of each token by id, added ones excepted; nothing where no token has this id.
  std::vector<std::optional<std::string>> tokens;
  // Pairs of token ids in order of rank.
  std::vector<std::pair<int32_t, int32_t>> merges;
  std::vector<AddedToken> added;
  std::optional<int32_t> end_id;
};

class BpeTokenizer : public Tokenizer {
 public:
  // `where` (the folder, for example) opens messages.
  //
  // Returns invalid_argument when a byte has no token, a merge names no token or gives none, or an
  // id or an added token stands twice.
  static Result<std::unique_ptr<BpeTokenizer>> create(BpeModel model, const std::string& where);

  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  Result<std::string> decode_bytes(std::span<const int32_t> ids) const override;
  std::optional<int32_t> end_id() const override { return model_.end_id; }
  bool can_cut_at_whitespace() const override;
  Status save(const std::string& folder) const override;

  const BpeModel& model() const { return model_; }

 private:
  BpeTokenizer(BpeModel model, PairTable pairs, std::array<int32_t, 256> byte_ids,
               std::vector<std::optional<std::string>> bytes);
  // The next added token at or behind `from`; at one place, the longest.
  struct Found {
    size_t position;
    const AddedToken* token;
  };
  std::optional<Found> find_added(std::string_view text, size_t from) const;

  BpeModel model_;
  PairTable pairs_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<std::optional<std::string>> bytes_;  // by id, added ones included
  std::string first_bytes_;                        // of the added tokens, each once
};

}  // namespace strata::data

#endif  // STRATA_DATA_BPE_TOKENIZER_H_
