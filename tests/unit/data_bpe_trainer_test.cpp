#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "strata/data/bpe_tokenizer.h"
#include "strata/data/bpe_trainer.h"
#include "strata/data/byte_alphabet.h"
#include "strata/data/word_splitter.h"
#include "tests/unit/data_bpe_fixture.h"

namespace strata::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Words with the frequencies of a natural text: few often, many seldom.
std::string random_text(uint32_t seed, size_t words) {
  std::mt19937 random(seed);
  std::vector<std::string> known;
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (unsigned n = random() % 9 + 1; n > 0; --n) word += "aabcdeenost\u00fc"[random() % 13];
    known.push_back(word);
  }
  std::string text;
  for (size_t i = 0; i < words; ++i) {
    const size_t rank = known.size() * (random() % 1000) * (random() % 1000) / 1000000;
    text += known[rank] + (random() % 10 ? " " : "\n");
  }
  return text;
}

// The definition: count all pairs anew for every merge.
std::vector<std::pair<int32_t, int32_t>> merges_by_definition(const std::string& text,
                                                              size_t count) {
  std::map<uint8_t, int32_t> byte_ids;
  for (int32_t i = 0; i < 256; ++i) byte_ids[bytes_in_alphabet_order()[i]] = i;
  std::map<std::vector<int32_t>, int64_t> words;
  WordSplitter splitter(text);
  while (splitter.next()) {
    std::vector<int32_t> ids;
    for (const char byte : splitter.word()) ids.push_back(byte_ids[static_cast<uint8_t>(byte)]);
    ++words[ids];
  }
  std::vector<std::pair<int32_t, int32_t>> merges;
  while (merges.size() < count) {
    std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
    for (const auto& [ids, n] : words)
      for (size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += n;
    auto best = pairs.begin();
    for (auto it = pairs.begin(); it != pairs.end(); ++it)
      if (it->second > best->second) best = it;
    const auto pair = best->first;
    const auto id = static_cast<int32_t>(256 + merges.size());
    merges.push_back(pair);
    std::map<std::vector<int32_t>, int64_t> merged;
    for (const auto& [ids, n] : words) {
      std::vector<int32_t> out;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second) {
          out.push_back(id);
          ++i;
        } else {
          out.push_back(ids[i]);
        }
      }
      merged[out] += n;
    }
    words = std::move(merged);
  }
  return merges;
}

const BpeModel& model_of(const Result<std::unique_ptr<Tokenizer>>& tokenizer) {
  return dynamic_cast<const BpeTokenizer&>(**tokenizer).model();
}

TEST(BpeTrainer, MergesTheMostFrequentPairEachTime) {
  for (const uint32_t seed : {1, 2, 3, 4, 5}) {
    const std::string text = random_text(seed, 2000) + " aaaaa aaaa aaaaaaa aaa";
    const auto tokenizer = train_bpe(text, {.vocab_size = 257 + 120});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ(model_of(tokenizer).merges, merges_by_definition(text, 120)) << "seed " << seed;
  }
}

TEST(BpeTrainer, GivesTheMergesThatTheReferenceTrainerGave) {
  // The merges of the BpeTrainer of Hugging Face's tokenizers 0.23, ties included.
  const std::string text =
      "low low low low low lower lower newest newest newest newest newest "
      "newest widest widest widest";
  const auto tokenizer = train_bpe(text, {.vocab_size = 257 + 8});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  test::TemporaryFolder folder;
  ASSERT_TRUE((*tokenizer)->save(folder.path()).ok());
  EXPECT_EQ(test::content_of(folder.file("merges.txt")),
            "#version: 0.2\ne s\nes t\nl o\nlo w\ne w\nn ew\n\u0120 low\n\u0120 new\n");
}

TEST(BpeTrainer, MakesATokenizerThatGivesTheTextBack) {
  const std::string text = random_text(9, 20000);
  const auto tokenizer = train_bpe(text, {.vocab_size = 700});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->vocab_size(), 700);
  EXPECT_EQ((*tokenizer)->end_id(), 699);
  const auto ids = (*tokenizer)->encode(text);
  EXPECT_EQ(*(*tokenizer)->decode_bytes(ids), text);
  EXPECT_LT(ids.size(), text.size() / 2);
  test::TemporaryFolder folder;
  ASSERT_TRUE((*tokenizer)->save(folder.path()).ok());
  EXPECT_EQ(test::must_load(folder.path())->encode(text), ids);
}

TEST(BpeTrainer, NeverMergesAcrossTheEndOfAText) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "ab<|endoftext|>";
  const auto tokenizer = train_bpe(text, {.vocab_size = 258});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->encode(text).size(), 200u);
  EXPECT_FALSE(train_bpe(text, {.vocab_size = 259}).ok());
}

TEST(BpeTrainer, SaysHowManyTokensAShortTextGives) {
  const auto tokenizer = train_bpe("abab abab", {.vocab_size = 8192});
  EXPECT_EQ(tokenizer.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(tokenizer.status().message(),
              AllOf(HasSubstr("9 bytes"), HasSubstr("259"), HasSubstr("8192"), HasSubstr("HINT")));
  EXPECT_FALSE(train_bpe("", {.vocab_size = 258}).ok());
  EXPECT_TRUE(train_bpe("", {.vocab_size = 257}).ok());
}

TEST(BpeTrainer, RefusesAVocabularyThatCannotBe) {
  EXPECT_THAT(train_bpe("text", {.vocab_size = 256}).status().message(), HasSubstr("257"));
  EXPECT_FALSE(train_bpe("text", {.vocab_size = -1}).ok());
  EXPECT_FALSE(train_bpe("text", {.vocab_size = INT64_MAX}).ok());
  EXPECT_FALSE(train_bpe("text", {.vocab_size = 300, .min_frequency = 0}).ok());
}

}  // namespace
}  // namespace strata::data
