// GPT-2 in 16 bits under every strategy on ranks as threads: the same bits everywhere, and steps
// that overflow.
#include "strata/train/precision.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "tests/world/ranks.h"

namespace strata::tests {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

struct Recipe {
  std::string strategy;
  int world = 1;
  std::string precision = "bf16-mixed";
  config::PrecisionConfig flags = {};
  int steps = 3;
  int accumulation = 1;
  bool recompute = false;
  bool skips_nonfinite = false;
  double weight = 1;  // multiplies the final norm's weight
};

// What a training gave, the same on every rank.
struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> scales;
  std::vector<bool> skipped;
  std::string initial;  // hash of the weights
  std::string weights;  // likewise, in the end
  int64_t updates = 0;
  std::string nonfinite;
  Status status;  // of the step that failed

  friend bool operator==(const Trained& a, const Trained& b) {
    return a.losses == b.losses && a.norms == b.norms && a.scales == b.scales &&
           a.skipped == b.skipped && a.weights == b.weights && a.updates == b.updates &&
           a.status.message() == b.status.message();
  }
};

std::string folder() { return std::string(STRATA_SOURCE_DIR) + "/tests/data/parity/gpt2-tied"; }

std::vector<zoo::Batch> batches_of(const Recipe& recipe, const World& world, int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step % 2));
  const at::Tensor ids = at::randint(0, 257, {12, 16}, generator, at::kLong);
  const int64_t rows = 12 / world.size / recipe.accumulation;
  std::vector<zoo::Batch> batches(static_cast<size_t>(recipe.accumulation));
  for (int micro = 0; micro < recipe.accumulation; ++micro) {
    zoo::Batch& batch = batches[static_cast<size_t>(micro)];
    batch.input_ids = ids.narrow(0, (micro * world.size + world.rank) * rows, rows);
    batch.labels = batch.input_ids;
  }
  return batches;
}

Status multiply_final_norm(strategy::Session& session, double factor) {
  std::vector<std::vector<at::Tensor>> content(session.spec().units.size());
  STRATA_RETURN_IF_ERROR(session.read_units([&](int unit, std::span<const at::Tensor> from) {
    for (const at::Tensor& t : from) content[static_cast<size_t>(unit)].push_back(t.clone());
    return Status();
  }));
  return session.write_units([&](int unit, std::span<const at::Tensor> to) {
    const auto u = static_cast<size_t>(unit);
    for (size_t i = 0; i < to.size(); ++i) {
      const bool is_scaled = session.spec().units[u].parameters[i].name.ends_with("ln_f.weight");
      to[i].copy_(is_scaled ? content[u][i] * factor : content[u][i]);
    }
    return Status();
  });
}

void train_rank(const Recipe& recipe, RankOfTest& rank, Trained& trained) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  at::set_num_threads(1);
  auto instance = plugin::StrategyInstance::create(find_strategy(recipe.strategy), rank.world,
                                                   {STRATA_DEVICE_CPU, 0}, rank.host->abi(), true);
  ASSERT_TRUE(instance.ok()) << instance.status().message();
  const train::Precision precision = train::make_precision(recipe.precision, recipe.flags);
  auto model = zoo::load_model(folder()).value();
  auto attached = strategy::Session::attach(std::move(instance).value(), *rank.host,
                                            train::with_dtypes(model->spec(), precision.units));
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  strategy::Session& session = **attached;
  model->bind_units(session.units());
  if (recipe.recompute) session.set_recompute(hooks::UnitGraph::every(1));
  ASSERT_TRUE(train::initialize_weights(session, *model, "", 7).ok());
  if (recipe.weight != 1) {
    ASSERT_TRUE(multiply_final_norm(session, recipe.weight).ok());
  }
  trained.initial = train::weight_hash(session).value();
  auto optimizer = train::make_optimizer({}, session, *rank.host).value();

  train::StepperOptions options;
  options.clipping.max_norm = 1;
  options.skips_nonfinite = recipe.skips_nonfinite;
  std::optional<optim::LossScale> scale;
  if (precision.dynamic_loss_scale) {
    options.loss_scale = &scale.emplace(*precision.dynamic_loss_scale);
  }
  options.fixed_loss_scale = precision.fixed_loss_scale;
  options.micro_batch_tokens = 12 * 16 / rank.world.size / recipe.accumulation;
  train::Stepper stepper(session, *rank.host, *model, *optimizer, options);
  for (int step = 0; step < recipe.steps; ++step) {
    const auto result = stepper.step(batches_of(recipe, rank.world, step), 1e-2);
    if (!result.ok()) {
      trained.status = result.status();
      break;
    }
    trained.losses.push_back(std::isfinite(result->loss) ? result->loss : -1);
    if (!result->is_skipped) trained.norms.push_back(result->grad_norm);
    trained.scales.push_back(result->loss_scale);
    trained.skipped.push_back(result->is_skipped);
    trained.nonfinite = result->nonfinite;
  }
  trained.updates = optimizer->step_count();
  trained.weights = train::weight_hash(session).value();
  EXPECT_TRUE(session.detach().ok());
}

Trained train(const Recipe& recipe) {
  std::vector<Trained> of_rank(static_cast<size_t>(recipe.world));
  run_ranks(recipe.world, [&](RankOfTest& rank) {
    train_rank(recipe, rank, of_rank[static_cast<size_t>(rank.world.rank)]);
  });
  for (const Trained& other : of_rank) {
    EXPECT_TRUE(other == of_rank[0]) << recipe.strategy << ": ranks disagree";
  }
  EXPECT_FALSE(of_rank[0].weights.empty()) << recipe.strategy;
  return of_rank[0];
}

config::PrecisionConfig with_scale(double init_scale) {
  config::PrecisionConfig flags;
  flags.init_scale = init_scale;
  return flags;
}

class PrecisionOfTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(PrecisionOfTraining, GivesTheSameBitsUnderEveryStrategy) {
  for (const int world : {1, 2}) {
    Recipe recipe{"ddp", world, GetParam(), with_scale(1024)};
    if (recipe.precision != "fp16-mixed") recipe.flags = {};
    const Trained ddp = train(recipe);
    EXPECT_EQ(ddp.losses.size(), 3U) << ddp.status.message();
    EXPECT_LT(ddp.losses[2], ddp.losses[0] - 0.05);
    for (const char* strategy : {"fsdp", "zero1", "zero2", "zero3"}) {
      recipe.strategy = strategy;
      EXPECT_TRUE(train(recipe) == ddp) << strategy << ", world " << world;
    }
  }
}

TEST_P(PrecisionOfTraining, GivesTheSameBitsWithRecomputationAndAccumulation) {
  Recipe recipe{"fsdp", 2, GetParam(), with_scale(1024)};
  if (recipe.precision != "fp16-mixed") recipe.flags = {};
  recipe.accumulation = 3;
  const Trained plain = train(recipe);
  recipe.recompute = true;
  EXPECT_TRUE(train(recipe) == plain);
}

INSTANTIATE_TEST_SUITE_P(Names, PrecisionOfTraining,
                         ::testing::Values("bf16-mixed", "bf16-true", "fp16-mixed"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(PrecisionOfTraining, IsThatOfItsName) {
  const Trained fp32 = train({"single", 1, "32"});
  const Trained mixed = train({"single", 1, "bf16-mixed"});
  const Trained pure = train({"single", 1, "bf16-true"});
  const Trained fp16 = train({"single", 1, "fp16-mixed", with_scale(1024)});
  for (const Trained* other : {&mixed, &pure, &fp16}) {
    EXPECT_NE(other->losses, fp32.losses);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(other->losses[i], fp32.losses[i], 0.02);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(other->norms[i] / fp32.norms[i], 1, 0.03);
  }
  // Gradients are added in fp32 or in bf16.
  EXPECT_NE(train({"single", 1, "bf16-mixed", {}, 3, 3}).weights,
            train({"single", 1, "bf16-true", {}, 3, 3}).weights);
}

TEST(PrecisionOfTraining, TakesOtherDtypesForTheWireAndForAccumulation) {
  const Trained plain = train({"fsdp", 2, "bf16-mixed"});
  config::PrecisionConfig wire;
  wire.reduce_dtype = "bf16";
  config::PrecisionConfig sums;
  sums.grad_accum_dtype = "bf16";
  for (const config::PrecisionConfig& flags : {wire, sums}) {
    const Trained other = train({"fsdp", 2, "bf16-mixed", flags});
    EXPECT_NE(other.weights, plain.weights);
    EXPECT_NEAR(other.losses[2], plain.losses[2], 0.01);
  }
}

// ---- overflow ----

TEST(LossScaleOfTraining, DoesNotChangeWhatIsLearnt) {
  // A power of two moves exponents alone, as long as nothing overflows or vanishes.
  const Trained a = train({"single", 1, "fp16-mixed", with_scale(1024)});
  const Trained b = train({"single", 1, "fp16-mixed", with_scale(2048)});
  EXPECT_EQ(a.scales, (std::vector<double>(3, 1024)));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-4);
    EXPECT_NEAR(a.norms[i] / b.norms[i], 1, 1e-3);
  }
}

TEST(LossScaleOfTraining, SkipsStepsThatOverflowOnAllRanksTogether) {
  for (const char* strategy : {"ddp", "zero1", "zero3"}) {
    Recipe recipe{strategy, 2, "fp16-mixed", with_scale(0x1p30)};
    const Trained skipped = train(recipe);
    EXPECT_THAT(skipped.skipped, Each(true)) << strategy;
    EXPECT_EQ(skipped.weights, skipped.initial) << strategy;
    EXPECT_EQ(skipped.updates, 0) << "a skipped step moves no schedule";
    EXPECT_EQ(skipped.scales, (std::vector<double>{0x1p30, 0x1p30, 0x1p29})) << "hysteresis 2";
    recipe.steps = 30;
    const Trained done = train(recipe);
    EXPECT_GT(done.updates, 0);
    EXPECT_NE(done.weights, done.initial);
    EXPECT_LT(done.losses.back(), done.losses.front());
  }
}

TEST(LossScaleOfTraining, EndsAtTheMinimumNamingScaleAndParameters) {
  config::PrecisionConfig flags = with_scale(0x1p30);
  flags.min_loss_scale = 0x1p29;
  const Trained ended = train({"zero3", 2, "fp16-mixed", flags, 10});
  EXPECT_EQ(ended.skipped.size(), 2U);
  EXPECT_EQ(ended.weights, ended.initial);
  EXPECT_THAT(ended.status.message(),
              AllOf(HasSubstr("overflow at loss scale 536870912"), HasSubstr("'transformer.wte"),
                    HasSubstr("and"), HasSubstr("HINT")));
}

TEST(LossScaleOfTraining, MayBeFixed) {
  config::PrecisionConfig flags;
  flags.loss_scale = 512;
  const Trained fixed = train({"fsdp", 2, "fp16-mixed", flags});
  EXPECT_EQ(fixed.scales, (std::vector<double>(3, 512)));
  EXPECT_EQ(fixed.updates, 3);
  flags.loss_scale = 0x1p30;
  const Trained stopped = train({"fsdp", 2, "fp16-mixed", flags});
  EXPECT_THAT(stopped.status.message(), HasSubstr("--on-nonfinite skip"));
  Recipe skipping{"fsdp", 2, "fp16-mixed", flags};
  skipping.skips_nonfinite = true;
  EXPECT_THAT(train(skipping).skipped, Each(true));
}

TEST(NonfiniteTraining, StopsOrSkipsNamingParametersInEveryPrecision) {
  for (const char* precision : {"32", "bf16-mixed", "bf16-true"}) {
    Recipe recipe{"fsdp", 2, precision};
    recipe.weight = std::nan("");
    const Trained stopped = train(recipe);
    EXPECT_TRUE(stopped.losses.empty()) << precision;
    EXPECT_THAT(stopped.status.message(),
                AllOf(HasSubstr("not finite, in the gradients of 'transformer."),
                      HasSubstr("weights are as before"), HasSubstr("HINT")));
    recipe.skips_nonfinite = true;
    const Trained skipped = train(recipe);
    EXPECT_THAT(skipped.skipped, Each(true)) << precision;
    EXPECT_EQ(skipped.updates, 0);
    EXPECT_EQ(skipped.weights, skipped.initial);
    EXPECT_THAT(skipped.nonfinite, HasSubstr("'transformer."));
  }
}

}  // namespace
}  // namespace strata::tests
