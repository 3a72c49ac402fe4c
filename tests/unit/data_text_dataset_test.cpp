#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "strata/data/text_dataset.h"
#include "tests/unit/data_bpe_fixture.h"

namespace strata::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TextDatasetTest : public testing::Test {
 protected:
  Status load(const std::string& path, int64_t sequence_length = 4) {
    return TextDataset::load(path, *tokenizer_, sequence_length).status();
  }
  std::unique_ptr<Tokenizer> tokenizer_ = test::must_load(test::kBpeFolder);
  test::TemporaryFolder folder_;
};

TEST_F(TextDatasetTest, CutsATextIntoBlocks) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "In the beginning God created the heaven and the earth.\n";
  const auto data = TextDataset::load(folder_.write("t.txt", text), *tokenizer_, 7);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto ids = tokenizer_->encode(text);
  EXPECT_EQ(data->token_count(), static_cast<int64_t>(ids.size()));
  EXPECT_EQ(data->size(), static_cast<int64_t>(ids.size()) / 7);
  EXPECT_EQ(data->sequence_length(), 7);
  for (int64_t i = 0; i < data->size(); ++i) {
    std::vector<int64_t> block(7);
    data->fill(i, block);
    EXPECT_TRUE(std::equal(block.begin(), block.end(), ids.begin() + i * 7)) << "block " << i;
  }
}

TEST_F(TextDatasetTest, JoinsTheTextsOfAFolderByName) {
  folder_.write("b.txt", "second");
  folder_.write("a.txt", "first");
  folder_.write("c.md", "not a text");
  folder_.write("d.txt/e.txt", "not a text either");
  const auto data = TextDataset::load(folder_.path(), *tokenizer_, 2);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const std::vector<int32_t> ids(data->tokens().begin(), data->tokens().end());
  EXPECT_EQ(*tokenizer_->decode(ids), "first<|endoftext|>second");
  EXPECT_EQ(data->largest_id(), 1999);
}

TEST_F(TextDatasetTest, GivesTheEntropyOfTheTokens) {
  const auto data = TextDataset::from_ids({1, 2, 3, 4, 1, 2, 1, 1}, 2, "ids");
  ASSERT_TRUE(data.ok());
  EXPECT_NEAR(data->unigram_entropy(), 0.5 * std::log(2) + 0.25 * std::log(4) + 0.25 * std::log(8),
              1e-12);
  EXPECT_EQ(TextDataset::from_ids({5, 5, 5}, 1, "ids")->unigram_entropy(), 0);
}

TEST_F(TextDatasetTest, SaysWhatIsWrongWithTheFile) {
  const auto says = [&](const std::string& path) {
    const std::string message = load(path).message();
    EXPECT_THAT(message, AllOf(HasSubstr(path), HasSubstr("HINT")));
    return message;
  };
  EXPECT_EQ(load(folder_.file("none")).code(), Code::kNotFound);
  EXPECT_THAT(says(folder_.file("none")), HasSubstr("No such file"));
  EXPECT_THAT(says(folder_.path()), HasSubstr("no .txt file"));
  EXPECT_THAT(says(folder_.write("empty.txt", "")), HasSubstr("is empty"));
  EXPECT_THAT(says(folder_.write("latin1", "caf\xe9 au lait")),
              AllOf(HasSubstr("not UTF-8"), HasSubstr("0xe9"), HasSubstr("offset 3 of 12")));
  const std::string short_text = folder_.write("short", "ab");
  EXPECT_THAT(load(short_text, 128).message(),
              AllOf(HasSubstr(short_text), HasSubstr("fewer than one sequence of 128"),
                    HasSubstr("HINT"), HasSubstr("--sequence-length")));
  EXPECT_THAT(load(short_text, 0).message(), HasSubstr("sequence length is 0"));
  EXPECT_THAT(load(short_text, -5).message(), HasSubstr("-5"));
}

TEST_F(TextDatasetTest, SaysWhenTheFileMayNotBeRead) {
  // Root may read everything, so the child gives its rights up.
  const std::string path = folder_.write("secret", "a text that is long enough");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  EXPECT_EXIT(
      {
        if (::geteuid() == 0 && ::setuid(65534) != 0) std::exit(3);
        const Status status = load(path);
        std::fputs(status.message().c_str(), stderr);
        std::exit(status.code() == Code::kIo ? 0 : 4);
      },
      testing::ExitedWithCode(0), "Permission denied.*HINT");
}

}  // namespace
}  // namespace strata::data
