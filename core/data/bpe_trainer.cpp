#include "strata/data/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/data/bpe_tokenizer.h"
#include "strata/data/byte_alphabet.h"
#include "strata/data/word_splitter.h"

namespace strata::data {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 |
                         static_cast<uint32_t>(pair.second);
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20);
  }
};

// A distinct word of the text, as the ids of its tokens so far.
struct Word {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

// How often a pair stands in the text, and in which words it has been seen.
struct PairUse {
  int64_t count = 0;
  std::vector<uint32_t> words;
};

// The heap holds each pair with a count that may be outdated: it is corrected when it comes up.
// Counts only fall after a pair has come into being, so no pair comes up too late.
struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {  // the heap's top is the largest
    return std::tie(count, other.pair) < std::tie(other.count, pair);
  }
};

std::vector<Word> count_words(std::string_view text) {
  std::array<int32_t, 256> byte_ids;
  for (size_t i = 0; i < 256; ++i) byte_ids[bytes_in_alphabet_order()[i]] = static_cast<int32_t>(i);
  std::vector<Word> words;
  std::unordered_map<std::string_view, size_t> index;
  while (!text.empty()) {
    const size_t end = std::min(text.find(kEndOfText), text.size());
    WordSplitter splitter(text.substr(0, end));
    while (splitter.next()) {
      const auto [it, is_new] = index.try_emplace(splitter.word(), words.size());
      if (is_new) {
        Word& word = words.emplace_back();
        for (const char byte : splitter.word())
          word.ids.push_back(byte_ids[static_cast<uint8_t>(byte)]);
      }
      ++words[it->second].count;
    }
    text.remove_prefix(std::min(end + kEndOfText.size(), text.size()));
  }
  return words;
}

class Trainer {
 public:
  explicit Trainer(std::vector<Word> words) : words_(std::move(words)) {
    for (const uint8_t byte : bytes_in_alphabet_order())
      model_.tokens.emplace_back(std::string(1, static_cast<char>(byte)));
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i)
        add({words_[w].ids[i], words_[w].ids[i + 1]}, w);
    for (const auto& [pair, use] : uses_) heap_.push({use.count, pair});
  }

  // Merges until there are `tokens` tokens, or no pair is left.
  void run(size_t tokens, int64_t min_frequency) {
    while (model_.tokens.size() < tokens && !heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const auto it = uses_.find(top.pair);
      const int64_t count = it == uses_.end() ? 0 : it->second.count;
      if (count < min_frequency) continue;
      if (count != top.count) {
        heap_.push({count, top.pair});
        continue;
      }
      merge(top.pair);
    }
  }

  BpeModel take() && { return std::move(model_); }

 private:
  void add(Pair pair, size_t word) {
    PairUse& use = uses_[pair];
    use.count += words_[word].count;
    if (use.words.empty() || use.words.back() != word)
      use.words.push_back(static_cast<uint32_t>(word));
  }

  void remove(Pair pair, size_t word) {
    const auto it = uses_.find(pair);
    if (it != uses_.end()) it->second.count -= words_[word].count;
  }

  void merge(Pair pair) {
    const auto id = static_cast<int32_t>(model_.tokens.size());
    model_.tokens.emplace_back(*model_.tokens[pair.first] + *model_.tokens[pair.second]);
    model_.merges.push_back(pair);
    const std::vector<uint32_t> words = std::move(uses_[pair].words);
    uses_.erase(pair);
    new_pairs_.clear();
    for (const uint32_t word : words) merge_in_word(word, pair, id);
    // Several words may have made the same pair; a second entry would only be outdated.
    std::sort(new_pairs_.begin(), new_pairs_.end());
    new_pairs_.erase(std::unique(new_pairs_.begin(), new_pairs_.end()), new_pairs_.end());
    for (const Pair& made : new_pairs_) {
      const auto it = uses_.find(made);
      if (it != uses_.end() && it->second.count > 0) heap_.push({it->second.count, made});
    }
  }

  // Replaces each `pair` from left to right, and keeps the counts of its neighbours right:
  //   a [x y] b   ->   a [z] b      -(a,x) +(a,z) -(y,b) +(z,b)
  void merge_in_word(size_t word, Pair pair, int32_t id) {
    std::vector<int32_t>& ids = words_[word].ids;
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++kept) {
      if (i + 1 == ids.size() || ids[i] != pair.first || ids[i + 1] != pair.second) {
        ids[kept] = ids[i++];
        continue;
      }
      if (kept > 0) {
        remove({ids[kept - 1], pair.first}, word);
        add_new({ids[kept - 1], id}, word);
      }
      if (i + 2 < ids.size()) {
        remove({pair.second, ids[i + 2]}, word);
        add_new({id, ids[i + 2]}, word);
      }
      ids[kept] = id;
      i += 2;
    }
    ids.resize(kept);
  }

  void add_new(Pair pair, size_t word) {
    add(pair, word);
    new_pairs_.push_back(pair);
  }

  std::vector<Word> words_;
  BpeModel model_;
  std::unordered_map<Pair, PairUse, PairHash> uses_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> new_pairs_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> train_bpe(std::string_view text,
                                             const BpeTrainerOptions& options) {
  if (options.vocab_size < 257 || options.vocab_size > 1 << 22)
    return invalid_argument(fmt::format(
        "tokenizer: a vocabulary of {} was asked for. HINT: 256 bytes and {} need at least 257; "
        "{} is the most",
        options.vocab_size, kEndOfText, 1 << 22));
  if (options.min_frequency < 1)
    return invalid_argument(
        fmt::format("tokenizer: min_frequency is {}. HINT: give 1 or more", options.min_frequency));
  Trainer trainer(count_words(text));
  const auto wanted = static_cast<size_t>(options.vocab_size - 1);
  trainer.run(wanted, options.min_frequency);
  BpeModel model = std::move(trainer).take();
  if (model.tokens.size() < wanted)
    return invalid_argument(fmt::format(
        "tokenizer: a text of {} bytes gives a vocabulary of {} at most, {} was asked for (pairs "
        "that stand at least {} times are merged). HINT: use a longer text or a smaller vocabulary",
        text.size(), model.tokens.size() + 1, options.vocab_size, options.min_frequency));
  model.end_id = static_cast<int32_t>(model.tokens.size());
  model.added.push_back({*model.end_id, std::string(kEndOfText), true});
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<BpeTokenizer> tokenizer,
                          BpeTokenizer::create(std::move(model), "trained tokenizer"));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace strata::data
