#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/data_bpe_fixture.h"

namespace strata::data {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_rows;
using test::kBpeFolder;
using test::must_load;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class BpeFiles : public testing::Test {
 protected:
  // The reference's tokenizer.json after a change.
  Status load_changed(const std::function<void(json&)>& change) {
    json tokenizer = json::parse(content_of(kBpeFolder + "/tokenizer.json"));
    change(tokenizer);
    folder_.write("tokenizer.json", tokenizer.dump());
    return load_tokenizer(folder_.path()).status();
  }
  Status load_with(const std::string& vocab, const std::string& merges) {
    folder_.write("vocab.json", vocab);
    folder_.write("merges.txt", merges);
    return load_tokenizer(folder_.path()).status();
  }
  std::string reference(const std::string& name) { return content_of(kBpeFolder + "/" + name); }

  test::TemporaryFolder folder_;
};

TEST_F(BpeFiles, AreWrittenSoThatTheyLoadAgain) {
  ASSERT_TRUE(must_load(kBpeFolder)->save(folder_.path()).ok());
  EXPECT_THAT(folder_.names(),
              ElementsAre("merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"));
  EXPECT_EQ(expect_rows(*must_load(folder_.path()), kBpeFolder + "/expected.jsonl"), 240);
  EXPECT_EQ(content_of(folder_.file("merges.txt")), reference("merges.txt"));
  EXPECT_EQ(json::parse(content_of(folder_.file("vocab.json"))),
            json::parse(reference("vocab.json")));
  std::filesystem::remove(folder_.file("tokenizer.json"));
  EXPECT_EQ(expect_rows(*must_load(folder_.path()), kBpeFolder + "/expected.jsonl"), 240);
}

TEST_F(BpeFiles, CannotBeWrittenIntoAMissingFolder) {
  const Status status = must_load(kBpeFolder)->save(folder_.file("missing"));
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_THAT(status.message(), HasSubstr("missing/tokenizer.json"));
}

TEST_F(BpeFiles, LoadWithMergesAsTextOrAsPairs) {
  ASSERT_TRUE(load_changed([](json& t) {
                for (json& merge : t["model"]["merges"])
                  if (merge.is_array())
                    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
              }).ok());
  EXPECT_EQ(expect_rows(*must_load(folder_.path()), kBpeFolder + "/expected.jsonl"), 240);
}

TEST_F(BpeFiles, ThatAreMissingAreNamed) {
  const auto says = [&](const std::string& path) {
    return load_tokenizer(path).status().message();
  };
  EXPECT_THAT(says(folder_.path()), AllOf(HasSubstr("tokenizer.json"), HasSubstr("merges.txt")));
  EXPECT_THAT(says(folder_.file("none")), HasSubstr("does not exist"));
  EXPECT_THAT(says(kBpeFolder + "/vocab.json"), HasSubstr("not a folder"));
  folder_.write("vocab.json", "{}");
  EXPECT_EQ(load_tokenizer(folder_.path()).status().code(), Code::kNotFound);
}

TEST_F(BpeFiles, ThatAskForAnotherSchemeAreRefused) {
  const auto expect_refused = [&](const std::function<void(json&)>& change, const char* part) {
    const Status status = load_changed(change);
    EXPECT_EQ(status.code(), Code::kUnsupported) << part << ": " << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(folder_.file("tokenizer.json")), HasSubstr(part),
                                        HasSubstr("HINT")));
  };
  expect_refused([](json& t) { t["model"]["type"] = "Unigram"; }, "Unigram");
  expect_refused([](json& t) { t["model"]["dropout"] = 0.1; }, "dropout");
  expect_refused([](json& t) { t["model"]["ignore_merges"] = true; }, "ignore_merges");
  expect_refused([](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  expect_refused([](json& t) { t["normalizer"] = {{"type", "NFC"}}; }, "normalizer");
  expect_refused([](json& t) { t["pre_tokenizer"] = nullptr; }, "pre_tokenizer");
  expect_refused([](json& t) { t["pre_tokenizer"]["type"] = "Metaspace"; }, "Metaspace");
  expect_refused([](json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }, "prefix");
  expect_refused([](json& t) { t["pre_tokenizer"]["use_regex"] = false; }, "use_regex");
  expect_refused([](json& t) { t["decoder"] = {{"type", "WordPiece"}}; }, "WordPiece");
  expect_refused(
      [](json& t) {
        t["post_processor"] = {{"type", "TemplateProcessing"}};
      },
      "TemplateProcessing");
  expect_refused([](json& t) { t["truncation"] = {{"max_length", 8}}; }, "truncation");
  expect_refused([](json& t) { t["added_tokens"][0]["lstrip"] = true; }, "lstrip");
  expect_refused([](json& t) { t["model"]["vocab"]["a b"] = 1998; }, "'a b'");
}

TEST_F(BpeFiles, ThatDoNotFitTogetherAreRefused) {
  const auto expect_bad = [&](const std::function<void(json&)>& change, const char* part) {
    const Status status = load_changed(change);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << part << ": " << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(part), HasSubstr("HINT")));
  };
  expect_bad([](json& t) { t = json::array(); }, "no 'model'");
  expect_bad([](json& t) { t["model"].erase("vocab"); }, "vocabulary");
  expect_bad([](json& t) { t["model"]["merges"] = 3; }, "merges");
  expect_bad([](json& t) { t["model"]["merges"][4] = {"a", "b", "c"}; }, "merge 5");
  expect_bad([](json& t) { t["model"]["merges"][4] = {"zzz", "b"}; }, "'zzz'");
  expect_bad([](json& t) { t["model"]["merges"][4] = {"q", "x"}; }, "'qx'");
  expect_bad([](json& t) { t["model"]["vocab"].erase("!"); }, "0x21");
  expect_bad([](json& t) { t["model"]["vocab"]["!"] = 1; }, "id 1 ");
  expect_bad([](json& t) { t["model"]["vocab"]["!"] = -1; }, "'!'");
  expect_bad([](json& t) { t["model"]["vocab"]["!"] = 1ll << 40; }, "1099511627776");
  expect_bad([](json& t) { t["added_tokens"][0]["id"] = 5; }, "id 5 ");
  expect_bad([](json& t) { t["added_tokens"][0]["content"] = ""; }, "added token");
  expect_bad(
      [](json& t) {
        t["added_tokens"].push_back(t["added_tokens"][0]);
        t["added_tokens"][1]["id"] = 2000;
      },
      "two ids");
}

TEST_F(BpeFiles, OfTheOlderKindNameTheLineOfAMistake) {
  const std::string vocab = reference("vocab.json");
  EXPECT_THAT(load_with(vocab, "#version: 0.2\nt h\n\nx\n").message(),
              AllOf(HasSubstr("merges.txt"), HasSubstr("line 4"), HasSubstr("'x'")));
  EXPECT_THAT(load_with(vocab, "t h\r\nt hhh\r\n").message(),
              AllOf(HasSubstr("line 2"), HasSubstr("'hhh'")));
  EXPECT_THAT(load_with("{\"!\": 0", "").message(), HasSubstr("vocab.json"));
  EXPECT_THAT(load_with("{\"!\": 0}", "").message(), HasSubstr("no token for byte"));
}

TEST_F(BpeFiles, WithoutAnEndTokenGetOne) {
  json vocab = json::parse(reference("vocab.json"));
  vocab.erase("<|endoftext|>");
  ASSERT_TRUE(load_with(vocab.dump(), reference("merges.txt")).ok());
  EXPECT_EQ(must_load(folder_.path())->end_id(), 1999);
  EXPECT_EQ(must_load(folder_.path())->vocab_size(), 2000);
}

TEST_F(BpeFiles, MayHaveFurtherAddedTokens) {
  ASSERT_TRUE(load_changed([](json& t) {
                json token = t["added_tokens"][0];
                token["content"] = "<|endoftext|>+";
                token["id"] = 2000;
                t["added_tokens"].push_back(token);
                token["content"] = "[my token]";
                token["id"] = 2003;
                token["special"] = false;
                t["added_tokens"].push_back(token);
              }).ok());
  folder_.write("tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>+"}})");
  const auto tokenizer = must_load(folder_.path());
  EXPECT_EQ(tokenizer->vocab_size(), 2004);
  EXPECT_EQ(tokenizer->end_id(), 2000);
  EXPECT_THAT(tokenizer->encode("<|endoftext|>+<|endoftext|>[my token]"),
              ElementsAre(2000, 1999, 2003));
  EXPECT_FALSE(tokenizer->can_cut_at_whitespace());
  const std::vector<int32_t> hole{2001};
  EXPECT_FALSE(tokenizer->decode(hole).ok());
  test::TemporaryFolder copy;
  ASSERT_TRUE(tokenizer->save(copy.path()).ok());
  const auto again = must_load(copy.path());
  EXPECT_EQ(again->end_id(), 2000);
  EXPECT_EQ(again->encode("x[my token]"), tokenizer->encode("x[my token]"));
}

}  // namespace
}  // namespace strata::data
