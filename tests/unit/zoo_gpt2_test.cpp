// GPT-2 against reference values of other software, and its own rules.
#include <gmock/gmock.h>

#include "strata/formats/json.h"
#include "strata/zoo/head_loss.h"
#include "tests/unit/zoo_fixture.h"

namespace strata::tests {
namespace {

using formats::SafetensorsFile;
using ::testing::HasSubstr;

class Gpt2Parity : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = parity_case(GetParam());
    case_ = formats::read_json(folder_ + "/case.json").value();
    model_ = std::make_unique<BoundModel>(folder_);
    model_->load(folder_);
  }
  double tolerance(const char* key) const { return case_["tolerance"][key].get<double>(); }

  std::string folder_;
  formats::Json case_;
  std::unique_ptr<BoundModel> model_;
};

TEST_P(Gpt2Parity, GivesTheReferenceLogitsLossAndGradients) {
  const SafetensorsFile inputs = SafetensorsFile::open(folder_ + "/inputs.safetensors").value();
  const SafetensorsFile expected = SafetensorsFile::open(folder_ + "/expected.safetensors").value();
  const zoo::Batch batch = batch_of(inputs);

  const at::Tensor logits = model_->model->logits(batch, model_->runner);
  const at::Tensor real = batch.attention_mask.unsqueeze(2).to(at::kFloat);
  const at::Tensor off = (logits - tensor_of(expected, "logits")).abs() * real;
  EXPECT_LE(off.max().item<double>(), tolerance("logits_abs"));

  const zoo::LossOutput out = model_->model->forward_loss(batch, model_->runner);
  EXPECT_EQ(out.label_tokens, case_["batch"]["counted"].get<int64_t>());
  const double loss = out.loss_sum.item<double>() / static_cast<double>(out.label_tokens);
  EXPECT_NEAR(loss, case_["expected"]["loss"].get<double>(), tolerance("loss_abs"));

  out.loss_sum.backward();
  for (const formats::TensorInfo& tensor : expected.tensors()) {
    if (!tensor.name.starts_with("grad.")) continue;
    const at::Tensor& parameter = model_->parameter(tensor.name.substr(5));
    const at::Tensor grad = parameter.grad() / static_cast<double>(out.label_tokens);
    EXPECT_LE((grad - tensor_of(expected, tensor.name)).abs().max().item<double>(),
              tolerance("grad_abs"))
        << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Parity,
                         ::testing::Values("gpt2-tied", "gpt2-untied-padded", "gpt2-accumulate4"));

TEST(HeadLoss, EqualsCrossEntropyAndItsGradients) {
  at::manual_seed(3);
  const int64_t vocab = 300;
  for (const int64_t count : {1, 7, 5000}) {  // one, a part of, and more than one chunk
    const at::Tensor rows = at::randn({count, 24}).set_requires_grad(true);
    const at::Tensor weight = at::randn({vocab, 24}).set_requires_grad(true);
    at::Tensor labels = at::randint(0, vocab, {count}, at::kLong);
    if (count > 1) labels.narrow(0, count / 2, 2).fill_(zoo::kNoLabel);
    const at::Tensor plain = at::cross_entropy_loss(at::linear(rows, weight), labels, {},
                                                    at::Reduction::Sum, zoo::kNoLabel);
    const auto expected = torch::autograd::grad({plain}, {rows, weight});
    const at::Tensor loss = zoo::head_loss(rows, weight, labels);
    const auto got = torch::autograd::grad({loss}, {rows, weight});
    EXPECT_NEAR(loss.item<double>(), plain.item<double>(), 1e-6 * plain.item<double>());
    EXPECT_TRUE(at::allclose(got[0], expected[0], 1e-5, 1e-5)) << count;
    EXPECT_TRUE(at::allclose(got[1], expected[1], 1e-4, 1e-4)) << count;
  }
}

TEST(HeadLoss, OfNoLabelAtAllIsZeroWithZeroGradients) {
  const at::Tensor rows = at::randn({4, 8}).set_requires_grad(true);
  const at::Tensor weight = at::randn({16, 8}).set_requires_grad(true);
  const at::Tensor labels = at::full({4}, zoo::kNoLabel, at::kLong);
  const at::Tensor loss = zoo::head_loss(rows, weight, labels);
  const auto grads = torch::autograd::grad({loss}, {rows, weight});
  EXPECT_EQ(loss.item<float>(), 0.0F);
  EXPECT_EQ(grads[0].abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(grads[1].abs().sum().item<float>(), 0.0F);
}

TEST(HeadLoss, NamesALabelOutsideOfTheVocabulary) {
  const at::Tensor labels = at::full({2}, 16, at::kLong);
  try {
    zoo::head_loss(at::randn({2, 8}), at::randn({16, 8}), labels);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("outside of the vocabulary of 16"));
  }
}

TEST(Gpt2, InitialWeightsDependOnSeedAndNameAlone) {
  const BoundModel model(parity_case("gpt2-tied"));
  const at::Tensor first = at::empty({48, 144});
  const at::Tensor again = at::empty({48, 144});
  const at::Tensor other_layer = at::empty({48, 144});
  const at::Tensor other_seed = at::empty({48, 144});
  model.model->initialize(1, 2, first, 7);
  model.model->initialize(2, 2, other_layer, 7);
  model.model->initialize(1, 2, again, 7);
  model.model->initialize(1, 2, other_seed, 8);
  EXPECT_TRUE(at::equal(first, again));
  EXPECT_FALSE(at::equal(first, other_layer));
  EXPECT_FALSE(at::equal(first, other_seed));
  EXPECT_NEAR(first.std().item<double>(), 0.08, 0.002);  // initializer_range
}

TEST(Gpt2, ScalesResidualProjectionsByTheirNumber) {
  const BoundModel model(parity_case("gpt2-tied"));
  const at::Tensor projection = at::empty({192, 48});
  model.model->initialize(1, 10, projection, 7);
  EXPECT_NEAR(projection.std().item<double>(), 0.08 / 2, 0.002);  // 2 layers: sqrt(2 * 2)
}

struct BadConfig {
  const char* name;
  const char* change;  // merged into the configuration of gpt2-tied
  const char* message;
};

class Gpt2BadConfig : public ::testing::TestWithParam<BadConfig> {};

TEST_P(Gpt2BadConfig, IsRefusedWithValuesAndHint) {
  formats::Json config = formats::read_json(parity_case("gpt2-tied") + "/config.json").value();
  config.merge_patch(formats::Json::parse(GetParam().change));
  const std::string path = ::testing::TempDir() + "/config_" + GetParam().name + ".json";
  ASSERT_TRUE(formats::write_json(path, config).ok());
  const auto model = zoo::load_model(path);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, Gpt2BadConfig,
    ::testing::Values(
        BadConfig{"Heads", R"({"n_head": 5})", "n_embd = 48 does not divide by n_head = 5"},
        BadConfig{"Unknown", R"({"n_embed": 48})", "did you mean 'n_embd'"},
        BadConfig{"CrossAttention", R"({"add_cross_attention": true})", "not supported"},
        BadConfig{"PrunedHeads", R"({"pruned_heads": {"0": [1]}})", "pruned_heads = {\"0\":[1]}"},
        BadConfig{"Upcast", R"({"reorder_and_upcast_attn": true})", "not supported"},
        BadConfig{"Activation", R"({"activation_function": "gelu_old"})", "gelu_old"},
        BadConfig{"Zero", R"({"n_layer": 0})", "n_layer is 0"},
        BadConfig{"Text", R"({"vocab_size": "many"})", "vocab_size"},
        BadConfig{"Dropout", R"({"resid_pdrop": 1.5})", "resid_pdrop is 1.5"},
        BadConfig{"Type", R"({"model_type": "llama"})", "llama"}),
    [](const auto& info) { return info.param.name; });

TEST(WeightFiles, ListMissingMisshapedAndLeftOverTensorsAtOnce) {
  const BoundModel model(parity_case("gpt2-tied"));
  const auto files = zoo::WeightFiles::open(parity_case("gpt2-untied-padded"), *model.model);
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(files.status().message(), HasSubstr("of another shape or dtype: "));
  EXPECT_THAT(files.status().message(), HasSubstr("not of this model: transformer.h.2."));
}

TEST(WeightFiles, GiveBackWhatWasWritten) {
  BoundModel model(parity_case("gpt2-tied"));
  model.load(parity_case("gpt2-tied"));
  const std::string folder = ::testing::TempDir();
  const zoo::UnitReader reader = [&](const auto& visit) -> Status {
    for (size_t u = 0; u < model.storages.size(); ++u) {
      STRATA_RETURN_IF_ERROR(visit(static_cast<int>(u), model.storages[u]->parameters()));
    }
    return {};
  };
  ASSERT_TRUE(zoo::write_weights(folder, *model.model, reader, true).ok());
  BoundModel again(parity_case("gpt2-tied"));
  again.load(folder);
  for (size_t u = 0; u < model.storages.size(); ++u) {
    EXPECT_EQ(model.memory[u], again.memory[u]) << "unit " << u;
  }
}

}  // namespace
}  // namespace strata::tests
