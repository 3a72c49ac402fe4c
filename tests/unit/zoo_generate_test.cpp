// Generation: token ids of the reference, sampling that keeps its promises, and prompts that cannot
// be continued.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "strata/formats/json.h"
#include "strata/zoo/generate.h"
#include "tests/unit/zoo_fixture.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor row(const std::vector<int64_t>& ids) { return at::tensor(ids).unsqueeze(0); }

at::Tensor rows_of(const nlohmann::json& rows) {
  std::vector<at::Tensor> out;
  for (const auto& row : rows) out.push_back(at::tensor(row.get<std::vector<int64_t>>()));
  return at::stack(out);
}

class Generation : public ::testing::Test {
 protected:
  Generation() : bound_(parity_case("gpt2-tied")) {
    bound_.load(parity_case("gpt2-tied") + "/generation.safetensors");
  }

  Result<at::Tensor> generate(const at::Tensor& ids, const zoo::GenerateOptions& options,
                              const at::Tensor& mask = {}) {
    return zoo::generate(*bound_.model, ids, mask, options, [&](const auto& body) {
      ++passes_;
      body(bound_.runner);
      return Status();
    });
  }

  std::string error_of(const at::Tensor& ids, const zoo::GenerateOptions& options,
                       const at::Tensor& mask = {}) {
    const auto made = generate(ids, options, mask);
    EXPECT_FALSE(made.ok());
    if (made.ok()) return "";
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
    return made.status().message();
  }

  at::Tensor prompt(int64_t rows = 1) const { return row({98, 72, 20}).repeat({rows, 1}); }
  zoo::GenerateOptions sampled(uint64_t seed, int64_t tokens = 10) const {
    zoo::GenerateOptions options;
    options.max_new_tokens = tokens;
    options.seed = seed;
    return options;
  }

  BoundModel bound_;
  int passes_ = 0;
};

TEST_F(Generation, GivesTheTokensOfTheReference) {
  std::ifstream file(parity_case("gpt2-tied") + "/generation.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto expected = nlohmann::json::parse(line);
    zoo::GenerateOptions options;
    options.greedy = true;
    options.max_new_tokens = expected["max_new_tokens"];
    options.pad = expected.value("pad", 0);
    if (expected["stop"].is_null()) {
      options.banned = 256;  // the end token of this model
    } else {
      options.stop = expected["stop"].get<int64_t>();
    }
    const auto made =
        generate(rows_of(expected["input_ids"]), options, rows_of(expected["attention_mask"]));
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_TRUE(at::equal(*made, rows_of(expected["sequences"]))) << expected["note"] << "\n"
                                                                  << *made;
  }
  EXPECT_EQ(cases, 3);
}

TEST_F(Generation, TakesOnePassAToken) {
  zoo::GenerateOptions options;
  options.greedy = true;
  options.max_new_tokens = 5;
  ASSERT_TRUE(generate(prompt(), options).ok());
  EXPECT_EQ(passes_, 5);
}

TEST_F(Generation, SamplesTheSameFromTheSameSeed) {
  const at::Tensor first = *generate(prompt(), sampled(1));
  EXPECT_TRUE(at::equal(first, *generate(prompt(), sampled(1))));
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const at::Tensor made = generate(prompt(), sampled(seed)).value().contiguous();
    seen.insert(std::string(reinterpret_cast<const char*>(made.const_data_ptr<int64_t>()),
                            static_cast<size_t>(made.nbytes())));
  }
  EXPECT_GT(seen.size(), 4U);
}

TEST_F(Generation, SamplesARowTheSameWhateverItsNeighbours) {
  const at::Tensor alone = *generate(prompt(), sampled(3));
  const at::Tensor ids = at::cat({prompt(), row({7, 8, 9})});
  const at::Tensor both = *generate(ids, sampled(3));
  EXPECT_TRUE(at::equal(both[0], alone[0]));
  const at::Tensor twice = *generate(prompt(2), sampled(3));
  EXPECT_FALSE(at::equal(twice[0], twice[1])) << "rows draw independently";
}

TEST_F(Generation, WithTopOneIsGreedy) {
  zoo::GenerateOptions greedy;
  greedy.greedy = true;
  greedy.max_new_tokens = 10;
  zoo::GenerateOptions top_one = sampled(5);
  top_one.top_k = 1;
  zoo::GenerateOptions little_mass = sampled(5);
  little_mass.top_p = 1e-6;
  const at::Tensor expected = *generate(prompt(), greedy);
  EXPECT_TRUE(at::equal(*generate(prompt(), top_one), expected));
  EXPECT_TRUE(at::equal(*generate(prompt(), little_mass), expected));
}

std::vector<int64_t> kept(const std::vector<double>& probabilities,
                          const zoo::GenerateOptions& options) {
  const at::Tensor logits = at::tensor(probabilities).to(at::kFloat).log().unsqueeze(0);
  const at::Tensor indices = zoo::filter_logits(logits, options)[0].isfinite().nonzero().view(-1);
  return {indices.const_data_ptr<int64_t>(), indices.const_data_ptr<int64_t>() + indices.numel()};
}

TEST(Filter, KeepsTheLargestK) {
  zoo::GenerateOptions options;
  options.top_k = 2;
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options), (std::vector<int64_t>{1, 3}));
  options.top_k = 9;
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options).size(), 4U);
}

TEST(Filter, KeepsTheFewestThatReachTopP) {
  zoo::GenerateOptions options;
  options.top_p = 0.6;
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options), (std::vector<int64_t>{1, 3}));
  options.top_p = 0.75;
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options), (std::vector<int64_t>{1, 2, 3}));
  options.top_p = 0.3;
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options), (std::vector<int64_t>{1}));
  options.top_p = 1;
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options).size(), 4U);
}

TEST(Filter, CountsTopPAfterTheTemperatureAndTopK) {
  zoo::GenerateOptions options;
  options.top_p = 0.6;
  options.temperature = 0.25;  // 0.4^4 is 0.73 of the sum
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options), (std::vector<int64_t>{1}));
  options.temperature = 1;
  options.top_k = 3;
  options.top_p = 0.75;  // 0.7 of 0.9 is 0.78
  EXPECT_EQ(kept({0.1, 0.4, 0.2, 0.3}, options), (std::vector<int64_t>{1, 3}));
}

TEST_F(Generation, ChoosesNoTokenThatTheTokenizerLacks) {
  zoo::GenerateOptions options = sampled(1, 40);
  options.temperature = 50;  // nearly all tokens are as likely
  options.usable_vocabulary = 10;
  const at::Tensor made = generate(prompt(4), options).value().slice(1, 3);
  EXPECT_LT(made.max().item<int64_t>(), 10);
  options.usable_vocabulary = 0;
  EXPECT_GE(generate(prompt(4), options).value().slice(1, 3).max().item<int64_t>(), 10);
}

TEST_F(Generation, SaysWhyAPromptCannotBeContinued) {
  const at::Tensor none = at::empty({1, 0}, at::kLong);
  EXPECT_THAT(error_of(none, {}), AllOf(HasSubstr("no token"), HasSubstr("HINT")));
  const int64_t positions = bound_.model->max_positions();
  EXPECT_THAT(error_of(at::zeros({1, positions + 1}, at::kLong), {}),
              AllOf(HasSubstr(std::to_string(positions + 1)),
                    HasSubstr(std::to_string(positions) + " positions"), HasSubstr("HINT")));
  EXPECT_THAT(error_of(prompt(), sampled(1, positions)),
              HasSubstr("HINT: at most " + std::to_string(positions - 2) + " new tokens"));
  EXPECT_THAT(error_of(row({1, 257}), {}), AllOf(HasSubstr("257"), HasSubstr("HINT")));
  EXPECT_THAT(error_of(prompt(), {}, row({1, 1, 0})), HasSubstr("at its end"));
  EXPECT_THAT(error_of(prompt(), {}, row({1, 0, 1})), HasSubstr("row 0"));
  EXPECT_THAT(error_of(prompt(), {}, row({0, 0, 0})), HasSubstr("no token"));
  EXPECT_EQ(passes_, 0);
}

TEST_F(Generation, FillsAllPositionsOfTheModel) {
  const int64_t most = bound_.model->max_positions() - 2;
  const auto made = generate(prompt(), sampled(1, most));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->size(1), 3 + most);
}

TEST_F(Generation, SaysWhichOptionIsOutOfRange) {
  zoo::GenerateOptions cold = sampled(1);
  cold.temperature = 0;
  EXPECT_THAT(error_of(prompt(), cold), AllOf(HasSubstr("temperature 0"), HasSubstr("HINT")));
  zoo::GenerateOptions mass = sampled(1);
  mass.top_p = 1.5;
  EXPECT_THAT(error_of(prompt(), mass), HasSubstr("top_p 1.5"));
  zoo::GenerateOptions stop = sampled(1);
  stop.stop = 300;
  EXPECT_THAT(error_of(prompt(), stop), AllOf(HasSubstr("300"), HasSubstr("257")));
}

TEST_F(Generation, PassesOnWhatInferenceSays) {
  const auto made = zoo::generate(*bound_.model, prompt(), {}, sampled(1),
                                  [](const auto&) { return peer_lost("rank 1 is gone"); });
  EXPECT_EQ(made.status().code(), Code::kPeerLost);
}

}  // namespace
}  // namespace strata::tests
