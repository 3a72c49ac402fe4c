// Learning rates against their closed forms, as transformers, torch and DeepSpeed have them.
#include <gtest/gtest.h>

#include <cmath>

#include "strata/optim/schedule.h"

namespace strata::optim {
namespace {

Schedule schedule(const std::string& kind, int64_t warmup = 5, int64_t total = 20) {
  Schedule s;
  s.kind = kind;
  s.learning_rate = 0.003;
  s.warmup_steps = warmup;
  s.total_steps = total;
  return s;
}

void expect_rates(const Schedule& s, const std::vector<std::pair<int64_t, double>>& expected) {
  for (const auto& [step, rate] : expected) {
    EXPECT_NEAR(learning_rate(s, step), rate, 1e-16) << s.kind << ", step " << step;
  }
}

TEST(Schedule, AllButTwoWarmUpLinearlyFromZero) {
  for (const char* kind :
       {"constant", "linear", "cosine", "polynomial", "inverse_sqrt", "exponential", "wsd"}) {
    Schedule s = schedule(kind);
    s.decay_steps = 4;
    expect_rates(s, {{0, 0}, {1, 0.0006}, {3, 0.0018}, {5, 0.003}});
  }
}

TEST(Schedule, ConstantStays) { expect_rates(schedule("constant"), {{6, 0.003}, {900, 0.003}}); }

TEST(Schedule, LinearEndsAtZero) {
  expect_rates(schedule("linear"), {{8, 0.003 * 12 / 15}, {19, 0.003 / 15}, {20, 0}, {50, 0}});
  expect_rates(schedule("linear", 0, 10), {{0, 0.003}, {9, 0.0003}});
}

TEST(Schedule, CosineEndsAtZero) {
  expect_rates(schedule("cosine"), {{12, 0.003 * (1 + std::cos(M_PI * 7 / 15)) / 2}, {20, 0}});
}

TEST(Schedule, PolynomialEndsWhereItIsTold) {
  Schedule s = schedule("polynomial");
  expect_rates(s, {{20, 1e-7}, {21, 1e-7}, {8, (0.003 - 1e-7) * (1 - 3.0 / 15) + 1e-7}});
  s.power = 2;
  s.end = 0.001;
  expect_rates(s, {{8, 0.002 * 0.8 * 0.8 + 0.001}, {20, 0.001}});
}

TEST(Schedule, InverseSqrtHasTheWarmUpAsItsTimescale) {
  expect_rates(schedule("inverse_sqrt"), {{5, 0.003}, {20, 0.003 / 2}, {45, 0.003 / 3}});
  expect_rates(schedule("inverse_sqrt", 0), {{0, 0.003}, {30000, 0.003 / 2}});
  Schedule s = schedule("inverse_sqrt");
  s.timescale = 15;
  expect_rates(s, {{5, 0.003}, {50, 0.003 / 2}});
}

TEST(Schedule, ExponentialMultipliesEachStep) {
  Schedule s = schedule("exponential");
  s.gamma = 0.5;
  expect_rates(s, {{5, 0.003}, {6, 0.0015}, {8, 0.003 / 8}});
}

TEST(Schedule, WsdIsStableAndDecaysInItsLastSteps) {
  Schedule s = schedule("wsd");
  s.decay_steps = 4;
  expect_rates(s, {{5, 0.003},
                   {15, 0.003},
                   {16, 0.003},
                   {18, 0.0015},
                   {20, 0},
                   {99, 0},
                   {17, 0.003 * (1 + std::cos(M_PI / 4)) / 2}});
  s.decay_type = "linear";
  s.min_ratio = 0.1;
  expect_rates(s, {{0, 0.0003},
                   {1, 0.003 * (0.2 * 0.9 + 0.1)},
                   {17, 0.003 * (0.75 * 0.9 + 0.1)},
                   {20, 0.0003}});
  s.decay_type = "1-sqrt";
  expect_rates(s, {{17, 0.003 * (0.5 * 0.9 + 0.1)}});
}

TEST(Schedule, WarmupLrIsDeepSpeeds) {
  Schedule s = schedule("WarmupLR", 10);
  s.warmup_min = 0.001;
  s.warmup_type = "log";
  expect_rates(s, {{0, 0.001},
                   {1, 0.001 + 0.002 * std::log(2) / std::log(10)},
                   {8, 0.001 + 0.002 * std::log(9) / std::log(10)},
                   {10, 0.003},
                   {500, 0.003}});
  s.warmup_type = "linear";
  expect_rates(s, {{0, 0.001}, {5, 0.002}, {10, 0.003}});
  expect_rates(schedule("WarmupLR", 0), {{0, 0}, {1, 0.0015}, {2, 0.003}});  // at least two steps
}

TEST(Schedule, OfAdafactorIsItsRelativeStep) {
  Schedule s = schedule("adafactor");
  expect_rates(s, {{0, 1e-2}, {9998, 1e-2}, {39999, 1.0 / 200}});
  s.warmup_init = true;
  expect_rates(s, {{0, 1e-6}, {99, 1e-4}, {999999, 1e-3}});
}

TEST(Schedule, ThatDoesNotFitTheRunIsRefused) {
  EXPECT_TRUE(check_schedule(schedule("linear", 20)).ok());
  EXPECT_EQ(check_schedule(schedule("linear", 21)).code(), Code::kInvalidArgument);
  Schedule wsd = schedule("wsd");
  wsd.decay_steps = 15;
  EXPECT_TRUE(check_schedule(wsd).ok());
  wsd.decay_steps = 16;
  EXPECT_NE(check_schedule(wsd).message().find("5 steps of warm-up and 16 of decay"),
            std::string::npos);
  Schedule polynomial = schedule("polynomial");
  polynomial.end = 0.004;
  EXPECT_EQ(check_schedule(polynomial).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::optim
