#include "strata/data/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "strata/data/bpe_files.h"
#include "strata/data/byte_alphabet.h"
#include "strata/data/word_splitter.h"

namespace strata::data {
namespace {

// Words of one text and where their ids begin in its output: most words of a text are repetitions.
class WordCache {
 public:
  struct Entry {
    std::string_view word;
    size_t first = 0;  // in the output
    uint32_t count = 0;
    uint32_t hash = 0;
  };

  WordCache() : slots_(1024) {}

  // The entry of `word`; with a count of 0 if it is new and its ids must be filled in.
  Entry& find(std::string_view word) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    const auto hash = static_cast<uint32_t>(std::hash<std::string_view>()(word));
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].count != 0 && !(slots_[i].hash == hash && slots_[i].word == word))
      i = (i + 1) & (slots_.size() - 1);
    if (slots_[i].count == 0) {
      slots_[i] = {word, 0, 0, hash};
      ++used_;
    }
    return slots_[i];
  }

 private:
  void grow() {
    std::vector<Entry> old(2 * slots_.size());
    old.swap(slots_);
    for (const Entry& entry : old) {
      if (entry.count == 0) continue;
      size_t i = entry.hash & (slots_.size() - 1);
      while (slots_[i].count != 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = entry;
    }
  }

  std::vector<Entry> slots_;
  size_t used_ = 0;
};

// Longer words hardly ever come twice.
constexpr size_t kLongestCachedWord = 64;

using Tokens = std::vector<std::optional<std::string>>;

Result<PairTable> make_pairs(const BpeModel& model, const std::string& where) {
  std::unordered_map<std::string_view, int32_t> id_of;
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (model.tokens[id]) id_of[*model.tokens[id]] = static_cast<int32_t>(id);
  PairTable pairs(model.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const auto [left, right] = model.merges[rank];
    for (const int32_t id : {left, right})
      if (id < 0 || static_cast<size_t>(id) >= model.tokens.size() || !model.tokens[id])
        return invalid_argument(fmt::format(
            "{}: merge {} names id {}, which is no token of the {} in the vocabulary. HINT: "
            "vocabulary and merges are of different tokenizers",
            where, rank + 1, id, model.tokens.size()));
    merged = *model.tokens[left] + *model.tokens[right];
    const auto it = id_of.find(merged);
    if (it == id_of.end())
      return invalid_argument(
          fmt::format("{}: merge {} gives '{}', which is not in the vocabulary. HINT: vocabulary "
                      "and merges are "
                      "of different tokenizers",
                      where, rank + 1, to_alphabet(merged)));
    pairs.insert(left, right, {static_cast<int32_t>(rank), it->second});
  }
  return pairs;
}

Result<std::array<int32_t, 256>> make_byte_ids(const Tokens& tokens, const std::string& where) {
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  for (size_t id = 0; id < tokens.size(); ++id)
    if (tokens[id] && tokens[id]->size() == 1)
      byte_ids[static_cast<uint8_t>(tokens[id]->front())] = static_cast<int32_t>(id);
  for (size_t byte = 0; byte < byte_ids.size(); ++byte)
    if (byte_ids[byte] < 0)
      return invalid_argument(fmt::format(
          "{}: the vocabulary has no token for byte 0x{:02x} ('{}'). HINT: it is not a byte-level "
          "vocabulary as GPT-2's",
          where, byte, to_alphabet(std::string(1, static_cast<char>(byte)))));
  return byte_ids;
}

// Adds the added tokens to the bytes by id.
Status add_tokens(const std::vector<AddedToken>& added, Tokens& bytes, const std::string& where) {
  constexpr int32_t kLargestId = 1 << 22;
  for (const AddedToken& token : added) {
    if (token.content.empty() || token.id < 0 || token.id > kLargestId)
      return invalid_argument(fmt::format(
          "{}: the added token '{}' has id {}. HINT: names must not be empty, ids lie in [0, {}]",
          where, token.content, token.id, kLargestId));
    if (static_cast<size_t>(token.id) >= bytes.size()) bytes.resize(token.id + 1);
    std::optional<std::string>& slot = bytes[token.id];
    if (slot && *slot != token.content)
      return invalid_argument(fmt::format(
          "{}: id {} belongs to the added token '{}' and to the token '{}'. HINT: the files are of "
          "different tokenizers",
          where, token.id, token.content, to_alphabet(*slot)));
    slot = token.content;
  }
  for (size_t i = 0; i < added.size(); ++i)
    for (size_t j = i + 1; j < added.size(); ++j)
      if (added[i].content == added[j].content)
        return invalid_argument(
            fmt::format("{}: the added token '{}' has two ids, {} and {}. HINT: keep one", where,
                        added[i].content, added[i].id, added[j].id));
  return {};
}

}  // namespace

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::create(BpeModel model,
                                                           const std::string& where) {
  STRATA_ASSIGN_OR_RETURN(PairTable pairs, make_pairs(model, where));
  STRATA_ASSIGN_OR_RETURN(const auto byte_ids, make_byte_ids(model.tokens, where));
  Tokens bytes = model.tokens;
  STRATA_RETURN_IF_ERROR(add_tokens(model.added, bytes, where));
  return std::unique_ptr<BpeTokenizer>(
      new BpeTokenizer(std::move(model), std::move(pairs), byte_ids, std::move(bytes)));
}

BpeTokenizer::BpeTokenizer(BpeModel model, PairTable pairs, std::array<int32_t, 256> byte_ids,
                           Tokens bytes)
    : model_(std::move(model)),
      pairs_(std::move(pairs)),
      byte_ids_(byte_ids),
      bytes_(std::move(bytes)) {
  for (const AddedToken& token : model_.added)
    if (first_bytes_.find(token.content.front()) == std::string::npos)
      first_bytes_ += token.content.front();
}

std::optional<BpeTokenizer::Found> BpeTokenizer::find_added(std::string_view text,
                                                            size_t from) const {
  if (first_bytes_.empty()) return std::nullopt;
  while (true) {
    from = first_bytes_.size() == 1 ? text.find(first_bytes_.front(), from)
                                    : text.find_first_of(first_bytes_, from);
    if (from == std::string_view::npos) return std::nullopt;
    const AddedToken* longest = nullptr;
    for (const AddedToken& token : model_.added)
      if (text.compare(from, token.content.size(), token.content) == 0 &&
          (longest == nullptr || token.content.size() > longest->content.size()))
        longest = &token;
    if (longest != nullptr) return Found{from, longest};
    ++from;
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  WordCache cache;
  std::vector<int32_t> word_ids;
  size_t begin = 0;
  while (begin < text.size()) {
    const std::optional<Found> added = find_added(text, begin);
    WordSplitter words(text.substr(begin, added ? added->position - begin : text.npos));
    while (words.next()) {
      const std::string_view word = words.word();
      const bool is_cached = word.size() <= kLongestCachedWord;
      WordCache::Entry* entry = is_cached ? &cache.find(word) : nullptr;
      if (entry != nullptr && entry->count > 0) {
        const size_t old_size = ids.size();
        ids.resize(old_size + entry->count);
        std::copy_n(ids.begin() + static_cast<ptrdiff_t>(entry->first), entry->count,
                    ids.begin() + static_cast<ptrdiff_t>(old_size));
        continue;
      }
      word_ids.clear();
      for (const char byte : word) word_ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      merge_word(pairs_, word_ids);
      if (entry != nullptr) {
        entry->first = ids.size();
        entry->count = static_cast<uint32_t>(word_ids.size());
      }
      ids.insert(ids.end(), word_ids.begin(), word_ids.end());
    }
    if (!added) break;
    ids.push_back(added->token->id);
    begin = added->position + added->token->content.size();
  }
}

Result<std::string> BpeTokenizer::decode_bytes(std::span<const int32_t> ids) const {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    if (id < 0 || static_cast<size_t>(id) >= bytes_.size() || !bytes_[id])
      return invalid_argument(
          fmt::format("tokenizer: id {} at place {} is not in the vocabulary of {}. HINT: ids and "
                      "tokenizer are "
                      "of different models",
                      id, i, bytes_.size()));
    out += *bytes_[id];
  }
  return out;
}

bool BpeTokenizer::can_cut_at_whitespace() const {
  return std::none_of(model_.added.begin(), model_.added.end(), [](const AddedToken& token) {
    return token.content.find_first_of(" \t\n\v\f\r") != std::string::npos;
  });
}

Status BpeTokenizer::save(const std::string& folder) const {
  return write_bpe_files(folder, model_);
}

}  // namespace strata::data
