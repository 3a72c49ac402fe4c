#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "strata/data/bpe_merger.h"
#include "strata/data/byte_alphabet.h"
#include "strata/data/text_dataset.h"
#include "strata/data/utf8.h"
#include "strata/data/word_splitter.h"
#include "tests/unit/data_bpe_fixture.h"

namespace strata::data {
namespace {

using test::expect_rows;
using test::kBpeFolder;
using test::must_load;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  WordSplitter splitter(text);
  while (splitter.next()) words.emplace_back(splitter.word());
  return words;
}

// Text of the kinds that have broken tokenizers: blanks of all sorts, scripts, broken bytes.
std::string random_text(std::mt19937& random, size_t pieces) {
  static const std::vector<std::string> kPieces{" ",
                                                "  ",
                                                "\n",
                                                "\t",
                                                "\r\n",
                                                "\u00a0",
                                                "\u2028",
                                                "\u180e",
                                                "a",
                                                "the",
                                                " the",
                                                "Lord",
                                                "'s",
                                                "'ll",
                                                "'",
                                                "12",
                                                "\u0663",
                                                "\u00e9",
                                                "e\u0301",
                                                "\u4e2d\u6587",
                                                "\U0001F600",
                                                "\u0905\u0928",
                                                ".",
                                                "!?",
                                                "<|",
                                                "|>",
                                                "<|endoftext|>",
                                                "\xff",
                                                "\xc3",
                                                "\xe2\x82",
                                                "\xed\xa0\x80",
                                                std::string(1, '\0')};
  std::string text;
  for (size_t i = 0; i < pieces; ++i) {
    if (random() % 8 == 0)
      text += static_cast<char>(random());
    else
      text += kPieces[random() % kPieces.size()];
  }
  return text;
}

TEST(BpeTokenizer, EncodesAndDecodesAsTheReferenceFromTokenizerJson) {
  const auto tokenizer = must_load(kBpeFolder);
  EXPECT_EQ(tokenizer->vocab_size(), 2000);
  EXPECT_EQ(tokenizer->end_id(), 1999);
  EXPECT_EQ(expect_rows(*tokenizer, kBpeFolder + "/expected.jsonl"), 240);
}

TEST(BpeTokenizer, EncodesAndDecodesAsTheReferenceFromVocabAndMerges) {
  test::TemporaryFolder folder;
  for (const char* name : {"vocab.json", "merges.txt"})
    folder.write(name, test::content_of(kBpeFolder + "/" + name));
  const auto tokenizer = must_load(folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 2000);
  EXPECT_EQ(expect_rows(*tokenizer, kBpeFolder + "/expected.jsonl"), 240);
}

TEST(BpeTokenizer, GivesAnyBytesBack) {
  const auto tokenizer = must_load(kBpeFolder);
  std::mt19937 random(17);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random, random() % 60);
    ASSERT_EQ(*tokenizer->decode_bytes(tokenizer->encode(text)), text);
  }
}

TEST(BpeTokenizer, TakesSpecialTokensOutOfTheTextFirst) {
  const auto tokenizer = must_load(kBpeFolder);
  EXPECT_THAT(tokenizer->encode("<|endoftext|><|endoftext|>"), ElementsAre(1999, 1999));
  auto ids = tokenizer->encode("one");
  ids.push_back(1999);
  for (const int32_t id : tokenizer->encode(" two")) ids.push_back(id);
  EXPECT_EQ(tokenizer->encode("one<|endoftext|> two"), ids);
  for (const int32_t id : tokenizer->encode("<|endoftext|")) EXPECT_NE(id, 1999);
}

TEST(BpeTokenizer, NamesAnIdThatIsNotInTheVocabulary) {
  const auto tokenizer = must_load(kBpeFolder);
  for (const int32_t id : {-1, 2000, INT32_MAX}) {
    const std::vector<int32_t> ids{1, 2, id};
    const auto text = tokenizer->decode(ids);
    EXPECT_EQ(text.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(text.status().message(), AllOf(HasSubstr(std::to_string(id)), HasSubstr("place 2"),
                                               HasSubstr("2000"), HasSubstr("HINT")));
  }
}

TEST(BpeTokenizer, GivesTheSameIdsOnSeveralThreads) {
  const auto tokenizer = must_load(kBpeFolder);
  ASSERT_TRUE(tokenizer->can_cut_at_whitespace());
  std::mt19937 random(23);
  std::string text;
  while (text.size() < 5u << 20) text += random_text(random, 1000);
  const auto whole = tokenizer->encode(text);
  for (const int threads : {0, 2, 3}) EXPECT_EQ(encode_text(*tokenizer, text, threads), whole);
}

TEST(BpeTokenizer, CanBeCutAtAnyWhitespaceBehindAscii) {
  const auto tokenizer = must_load(kBpeFolder);
  std::mt19937 random(29);
  for (int round = 0; round < 200; ++round) {
    const std::string text = random_text(random, 30);
    const auto whole = tokenizer->encode(text);
    for (size_t i = 1; i < text.size(); ++i) {
      const auto is_space = [&](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
      if (!is_space(text[i]) || is_space(text[i - 1]) || static_cast<signed char>(text[i - 1]) <= 0)
        continue;
      auto ids = tokenizer->encode(std::string_view(text).substr(0, i));
      tokenizer->encode(std::string_view(text).substr(i), ids);
      ASSERT_EQ(ids, whole) << "cut at " << i;
    }
  }
}

TEST(BpeTokenizer, TakesALongWordInItsStride) {
  const auto tokenizer = must_load(kBpeFolder);
  // Quadratic time would take minutes.
  const std::string word(1 << 20, 't');
  EXPECT_EQ(*tokenizer->decode_bytes(tokenizer->encode(word)), word);
}

TEST(WordSplitter, SplitsAsGpt2Does) {
  EXPECT_THAT(words_of("I'll  see 2 of 'em!\n\n x"),
              ElementsAre("I", "'ll", " ", " see", " 2", " of", " '", "em", "!", "\n\n", " x"));
  EXPECT_THAT(words_of("a\u00a0\u00a0b"), ElementsAre("a", "\u00a0", "\u00a0", "b"));
  EXPECT_THAT(words_of("a\u180eb"), ElementsAre("a", "\u180e", "b"));
  EXPECT_THAT(words_of("a \u180e"), ElementsAre("a", " \u180e"));
  EXPECT_THAT(words_of("a.\u180e"), ElementsAre("a", ".\u180e"));
  EXPECT_THAT(words_of("a\xff\xfe b"), ElementsAre("a", "\xff\xfe", " b"));
  EXPECT_THAT(words_of(""), ElementsAre());
}

TEST(Utf8, FindsWhatIsNotWellFormed) {
  EXPECT_EQ(to_valid_utf8("a\xff\u00fc"), "a\ufffd\u00fc");
  EXPECT_EQ(to_valid_utf8("\xe2\x82"), "\ufffd");  // the beginning of U+20AC
  EXPECT_EQ(to_valid_utf8("\xe2\x82\x41"),
            "\ufffd"
            "A");
  EXPECT_EQ(to_valid_utf8("\xc0\xaf"), "\ufffd\ufffd");            // overlong
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");  // a surrogate
  EXPECT_EQ(to_valid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(to_valid_utf8("\xf0\x9f\x98"), "\ufffd");
  EXPECT_EQ(valid_utf8_prefix("0123456789\u00fc\U0010ffff\x80"), 16u);
}

TEST(ByteAlphabet, SpellsEachByteByItsOwnCharacter) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(*from_alphabet(to_alphabet(all)), all);
  EXPECT_EQ(to_alphabet(" \n"), "\u0120\u010a");
  EXPECT_EQ(valid_utf8_prefix(to_alphabet(all)), to_alphabet(all).size());
  for (const char* other : {" ", "\u0144", "\u4e2d", "\xff", "\xad"})
    EXPECT_FALSE(from_alphabet(other).has_value()) << other;
  EXPECT_EQ(bytes_in_alphabet_order()[0], '!');
  EXPECT_EQ(bytes_in_alphabet_order()[220], ' ');
}

// The definition, word by word: the pair of lowest rank, leftmost, until there is none.
std::vector<int32_t> merged_by_definition(
    const std::map<std::pair<int32_t, int32_t>, Merge>& merges, std::vector<int32_t> ids) {
  while (true) {
    const Merge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = merges.find({ids[i], ids[i + 1]});
      if (it != merges.end() && (best == nullptr || it->second.rank < best->rank)) {
        best = &it->second;
        place = i;
      }
    }
    if (best == nullptr) return ids;
    ids[place] = best->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(BpeMerger, MergesShortAndLongWordsByTheDefinition) {
  std::mt19937 random(31);
  for (int round = 0; round < 300; ++round) {
    std::map<std::pair<int32_t, int32_t>, Merge> merges;
    PairTable pairs;
    const int32_t letters = 3, tokens = letters + 40;
    std::vector<int32_t> ranks(40);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);  // also tables no trainer would make
    for (int32_t id = letters; id < tokens; ++id) {
      const std::pair<int32_t, int32_t> pair(random() % id, random() % id);
      if (merges.contains(pair)) continue;
      merges[pair] = {ranks[id - letters], id};
      pairs.insert(pair.first, pair.second, merges[pair]);
    }
    for (const size_t size : {0, 1, 2, 7, 47, 48, 49, 50, 200}) {
      std::vector<int32_t> ids(size);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % letters);
      const auto expected = merged_by_definition(merges, ids);
      merge_word(pairs, ids);
      ASSERT_EQ(ids, expected) << "round " << round << ", size " << size;
    }
  }
}

}  // namespace
}  // namespace strata::data
