// Twenty steps of GPT-2 on one process against curves of other software: model, sink, norm,
// clipping, schedule and AdamW together.
#include <cmath>
#include <fstream>

#include "strata/formats/json.h"
#include "strata/hooks/unit_graph.h"
#include "strata/optim/clipping.h"
#include "strata/optim/norm.h"
#include "strata/optim/registry.h"
#include "strata/optim/schedule.h"
#include "tests/unit/zoo_fixture.h"

namespace strata::tests {
namespace {

using formats::Json;
using formats::SafetensorsFile;

// Whole units that stay where they are; gradients go into flat memory.
class WholeUnits final : public hooks::UnitEvents {
 public:
  explicit WholeUnits(BoundModel& model) {
    for (size_t u = 0; u < model.storages.size(); ++u) {
      gradients_.emplace_back(model.memory[u].size(), 0.0F);
      model::Partition partition;
      partition.unit = static_cast<int>(u);
      partition.numel = static_cast<int64_t>(model.memory[u].size());
      partition.master = model.memory[u].data();
      partition.gradient = gradients_.back().data();
      partitions.push_back(partition);
    }
  }

  void before_forward(int, hooks::Phase, int) override {}
  void after_forward(int, hooks::Phase, int, bool) override {}
  void before_backward(int, int) override {}
  void after_backward(int, int, std::span<const int>) override {}
  hooks::GradientTarget gradient_target(int unit) override {
    return {gradients_[static_cast<size_t>(unit)].data(), at::kFloat, is_accumulating};
  }

  bool is_accumulating = false;
  std::vector<model::Partition> partitions;

 private:
  std::vector<std::vector<float>> gradients_;
};

class Gpt2Training : public ::testing::TestWithParam<const char*> {
 protected:
  Gpt2Training()
      : folder_(parity_case(GetParam())),
        case_(formats::read_json(folder_ + "/case.json").value()),
        model_(folder_),
        units_(model_),
        graph_(model_.model->spec().order, storages(), units_),
        inputs_(SafetensorsFile::open(folder_ + "/inputs.safetensors").value()) {}

  void SetUp() override {
    model_.load(folder_);
    std::vector<model::FlatLayout> layouts;
    for (const auto& storage : model_.storages) layouts.push_back(storage->layout());
    const auto allocate = [](int64_t numel) -> Result<optim::StateMemory> {
      return optim::StateMemory(new float[static_cast<size_t>(numel)](),
                                std::default_delete<float[]>());
    };
    const model::ModelSpec& spec = model_.model->spec();
    const auto groups =
        optim::assign_groups(spec, {}, case_["training"]["decoupled_weight_decay"].get<double>())
            .value();
    adamw_ =
        optim::make_optimizer({}, {spec, layouts, units_.partitions, groups, allocate}).value();
  }

  std::vector<model::UnitStorage*> storages() const {
    std::vector<model::UnitStorage*> units;
    for (const auto& storage : model_.storages) units.push_back(storage.get());
    return units;
  }

  // Loss of the whole batch, and its gradients in the units' memory.
  double forward_backward() {
    const zoo::Batch batch = batch_of(inputs_);
    const auto parts = case_["batch"]["micro_batches"].get<int64_t>();
    const int64_t rows = batch.input_ids.size(0) / parts;
    double loss = 0;
    tokens_ = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const auto part = [&](const at::Tensor& all) { return all.narrow(0, i * rows, rows); };
      units_.is_accumulating = i > 0;
      graph_.begin(hooks::Phase::kForward);
      const zoo::LossOutput out = model_.model->forward_loss(
          {part(batch.input_ids), part(batch.labels), part(batch.attention_mask)}, graph_);
      graph_.backward(out.loss_sum);
      loss += out.loss_sum.item<double>();
      tokens_ += out.label_tokens;
    }
    return loss / static_cast<double>(tokens_);
  }

  double gradient_norm() const {
    optim::NormAccumulator norm;
    for (const model::Partition& partition : units_.partitions) norm.add(partition);
    return optim::NormAccumulator::norm(norm.limbs()) / static_cast<double>(tokens_);
  }

  optim::Schedule schedule() const {
    const Json& training = case_["training"];
    return {"cosine", training["learning_rate"].get<double>(),
            training["schedule"]["warmup_steps"].get<int64_t>(),
            training["schedule"]["total_steps"].get<int64_t>()};
  }

  // Differences of a weight after training, without the entries whose gradient is zero.
  at::Tensor differences(const SafetensorsFile& expected, const std::string& name) const {
    at::Tensor off =
        (model_.parameter(name).detach() - tensor_of(expected, name)).abs().reshape({-1});
    const Json& left_out = case_["zero_gradient_entries"]["entries"];
    if (!left_out.contains(name)) return off;
    for (const Json& range : left_out[name]) {
      off.slice(0, range[0].get<int64_t>(), range[1].get<int64_t>()).fill_(0);
    }
    return off;
  }

  double tolerance(const char* key) const { return case_["tolerance"][key].get<double>(); }

  std::string folder_;
  Json case_;
  BoundModel model_;
  WholeUnits units_;
  hooks::UnitGraph graph_;
  SafetensorsFile inputs_;
  std::unique_ptr<optim::Optimizer> adamw_;
  optim::NoReducer reducer_;
  int64_t tokens_ = 0;
};

TEST_P(Gpt2Training, FollowsTheReferenceForTwentySteps) {
  std::ifstream lines(folder_ + "/train.jsonl");
  int64_t step = 0;
  for (std::string line; std::getline(lines, line); ++step) {
    const Json expected = Json::parse(line);
    const double loss = expected["loss"].get<double>();
    const double norm = expected["grad_norm"].get<double>();
    EXPECT_NEAR(forward_backward(), loss, loss * tolerance("train_loss_rel")) << "step " << step;
    EXPECT_NEAR(gradient_norm(), norm, norm * tolerance("train_grad_norm_rel")) << "step " << step;
    const double rate = optim::learning_rate(schedule(), step);
    EXPECT_NEAR(rate, expected["lr"].get<double>(), 1e-12) << "step " << step;
    const double factor = optim::clip_factor(gradient_norm(), 1.0) / static_cast<double>(tokens_);
    ASSERT_TRUE(adamw_->step(rate, {factor}, reducer_).ok());
    for (const auto& storage : model_.storages) storage->advance_epoch();
  }
  EXPECT_EQ(step, 20);

  const SafetensorsFile expected =
      SafetensorsFile::open(folder_ + "/train_final.safetensors").value();
  std::vector<at::Tensor> all;
  for (const formats::TensorInfo& tensor : expected.tensors()) {
    all.push_back(differences(expected, tensor.name));
    EXPECT_LE(all.back().max().item<double>(), tolerance("final_weight_abs_of_any")) << tensor.name;
  }
  const at::Tensor sorted = std::get<0>(at::sort(at::cat(all)));
  EXPECT_LE(sorted[sorted.size(0) * 999 / 1000].item<double>(),
            tolerance("final_weight_abs_of_999_in_1000"));
}

INSTANTIATE_TEST_SUITE_P(Cases, Gpt2Training,
                         ::testing::Values("gpt2-tied", "gpt2-untied-padded", "gpt2-accumulate4"));

}  // namespace
}  // namespace strata::tests
