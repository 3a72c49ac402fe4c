// A strategy written in C, with nothing but the headers, trains under the checked mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "strata/plugin/strategy_instance.h"
#include "tests/abi/fake_host.h"

namespace strata::plugin {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kNumel = 64;

// Two units, the second one frozen, and the host's part of a step: the gradient of an element is
// the element itself.
class APlainCStrategy : public ::testing::Test {
 protected:
  APlainCStrategy() {
    auto loaded = PluginLibrary::load(std::string(STRATA_TEST_PLUGINS) + "/libstrata_plain_c.so",
                                      host_.offer(), Closing::kAtEnd);
    STRATA_CHECK(loaded.ok()) << loaded.status().message();
    library_ = *loaded;
    static constexpr const char* kNames[] = {"block", "frozen"};
    for (size_t u = 0; u < 2; ++u) {
      units_[u].struct_size = sizeof(strata_unit_t);
      units_[u].name = kNames[u];
      units_[u].numel = kNumel;
      units_[u].compute_dtype = units_[u].reduce_dtype = STRATA_DTYPE_F32;
      units_[u].entries = 1;
      units_[u].trainable = u == 0;
    }
    model_.struct_size = sizeof(model_);
    model_.unit_count = model_.order_count = 2;
    model_.units = units_.data();
    model_.order = order_.data();
  }

  ResolvedStrategy strategy(OptionList options = {}) const {
    return {library_, "plain_c", std::move(options), ""};
  }
  Result<StrategyInstance> create(OptionList options = {}) {
    return StrategyInstance::create(strategy(std::move(options)), {}, kCpu, host_.abi(), true);
  }
  static strata_unit_context_t context(uint32_t unit, int32_t phase, uint32_t micro_batch,
                                       int32_t sync) {
    strata_unit_context_t out{};
    out.struct_size = sizeof(out);
    out.unit = unit;
    out.phase = phase;
    out.next_unit = STRATA_NONE;
    out.micro_batch = micro_batch;
    out.sync = sync;
    return out;
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  void train_micro_batch(StrategyInstance& instance, uint32_t micro_batch, int32_t sync) {
    strata_unit_view_t view{};
    strata_gradient_target_t target{};
    int32_t residency = 0;
    for (uint32_t u = 0; u < 2; ++u) {
      const auto with = context(u, STRATA_PHASE_FORWARD, micro_batch, sync);
      expect_ok(instance.before_forward(with, &view));
      expect_ok(instance.after_forward(with, &residency));
    }
    for (const uint32_t u : {1u, 0u}) {
      const auto with = context(u, STRATA_PHASE_BACKWARD, micro_batch, sync);
      expect_ok(instance.before_backward(with, &view));
      if (u == 0) {
        expect_ok(instance.gradient_target(with, &target));
        for (uint64_t i = 0; i < kNumel; ++i) {
          const float gradient = static_cast<float*>(view.data)[i];
          float& to = static_cast<float*>(target.data)[i];
          to = target.mode == STRATA_GRADIENT_ADD ? to + gradient : gradient;
        }
      }
      expect_ok(instance.after_backward(with, &residency));
    }
    expect_ok(instance.end_backward(sync));
  }

  static constexpr strata_device_t kCpu = {STRATA_DEVICE_CPU, 0};
  test::FakeHost host_;
  std::shared_ptr<PluginLibrary> library_;
  std::array<strata_unit_t, 2> units_{};
  const std::array<uint32_t, 2> order_{0, 1};
  strata_model_t model_{};
};

TEST_F(APlainCStrategy, TrainsAndGivesEveryByteBack) {
  {
    auto instance = create();
    ASSERT_TRUE(instance.ok()) << instance.status().message();
    strata_layout_t layout{};
    expect_ok(instance->layout(units_[0], &layout));
    EXPECT_EQ(layout.unit_multiple, 64u);
    expect_ok(instance->attach(model_));
    strata_unit_view_t view{};
    expect_ok(instance->open_unit(0, STRATA_INTENT_WRITE, &view));
    for (uint64_t i = 0; i < kNumel; ++i) static_cast<float*>(view.data)[i] = 8;
    expect_ok(instance->close_unit(0));

    train_micro_batch(*instance, 0, 0);
    train_micro_batch(*instance, 1, 1);  // the window's gradient is 8 + 8
    ASSERT_EQ(instance->partition_count(), 2u);
    strata_partition_t partition{};
    expect_ok(instance->partition(0, &partition));
    EXPECT_EQ(static_cast<float*>(partition.gradient)[5], 16.0f);
    expect_ok(instance->before_step());
    static_cast<float*>(partition.master)[5] -= 0.25f * 16;
    expect_ok(instance->after_step(1));

    expect_ok(instance->open_unit(0, STRATA_INTENT_READ, &view));
    EXPECT_EQ(static_cast<float*>(view.data)[5], 4.0f);
    EXPECT_EQ(static_cast<float*>(view.data)[6], 8.0f);
    expect_ok(instance->close_unit(0));
    double norm = 3;
    expect_ok(instance->all_reduce_small(
        {sizeof(strata_small_reduction_t), STRATA_DTYPE_F64, STRATA_REDUCE_SUM, 1, &norm}));
    EXPECT_EQ(norm, 3);
    expect_ok(instance->quiesce());
    expect_ok(instance->detach());
    expect_ok(instance->attach(model_));
    StrategyInstance moved = std::move(*instance);
    moved.abort("the test ends");
  }
  EXPECT_EQ(host_.allocations, 0);
}

TEST_F(APlainCStrategy, EstimatesWithoutAnInstance) {
  const auto estimate = StrategyInstance::estimate(strategy(), {}, kCpu, model_);
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->param_bytes, 2 * kNumel * 4);
  EXPECT_EQ(estimate->grad_bytes, kNumel * 4);
}

TEST_F(APlainCStrategy, SaysWhyItCannotBeMade) {
  EXPECT_THAT(create({{"bucket_cap_mb", "3"}}).status().message(),
              HasSubstr("plain_c: it has no options"));
}

TEST_F(APlainCStrategy, HasNoCollectives) {
  auto instance = create();
  const Status status = instance->barrier();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("has no table 'strata.collectives/1'"));
}

}  // namespace
}  // namespace strata::plugin
