// The host's device on a real GPU: kernels equal those of the CPU bit for bit, streams keep order.
// Skipped where there is no GPU.
#include <random>
#include <vector>

#include "strata/device/cpu_kernels.h"
#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

class DeviceGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    HostConfig config;
    config.device = {STRATA_DEVICE_CUDA, 0};
    config.device_library = STRATA_LIBRARY_DIR "/libstrata_device_cuda.so";
    config.timeout = std::chrono::seconds(30);
    Result<std::unique_ptr<Host>> host = Host::create(config);
    if (!host.ok()) {
      ASSERT_EQ(host.status().code(), Code::kUnsupported) << host.status().message();
      GTEST_SKIP() << host.status().message();
    }
    host_ = std::move(host).value();
  }
  void* memory(uint64_t bytes) {
    return *host_->allocate({STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 0, bytes, 0, "test"});
  }
  void finish(strata_stream_t stream) {
    const strata_event_t event = *host_->create_event();
    ASSERT_TRUE(host_->record(event, stream).ok());
    ASSERT_TRUE(host_->synchronize(event, "the test's work").ok());
    host_->destroy_event(event);
  }
  std::unique_ptr<Host> host_;
};

TEST_F(DeviceGpu, KernelsEqualThoseOfTheCpu) {
  constexpr uint64_t kCount = 1000003;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> src(kCount);
  for (float& value : src) value = normal(random);
  const strata_stream_t stream = host_->compute_stream();
  auto* device_src = static_cast<float*>(memory(kCount * 4));
  auto* device_dst = static_cast<uint16_t*>(memory(kCount * 2));
  ASSERT_TRUE(host_->copy(stream, device_src, src.data(), kCount * 4).ok());
  for (const int32_t dtype : {STRATA_DTYPE_BF16, STRATA_DTYPE_F16}) {
    std::vector<uint16_t> expected(kCount);
    std::vector<uint16_t> actual(kCount);
    cast_elements(expected.data(), dtype, src.data(), STRATA_DTYPE_F32, kCount);
    add_elements(expected.data(), dtype, src.data(), STRATA_DTYPE_F32, kCount);
    scale_elements(expected.data(), dtype, 0.3F, kCount);
    ASSERT_TRUE(host_->cast(stream, device_dst, dtype, device_src, STRATA_DTYPE_F32, kCount).ok());
    ASSERT_TRUE(host_->add(stream, device_dst, dtype, device_src, STRATA_DTYPE_F32, kCount).ok());
    ASSERT_TRUE(host_->scale(stream, device_dst, dtype, 0.3F, kCount).ok());
    ASSERT_TRUE(host_->copy(stream, actual.data(), device_dst, kCount * 2).ok());
    finish(stream);
    EXPECT_EQ(actual, expected) << "dtype " << dtype;
  }
  EXPECT_TRUE(host_->free(device_src).ok());
  EXPECT_TRUE(host_->free(device_dst).ok());
}

TEST_F(DeviceGpu, ASideStreamWaitsForTheComputeStream) {
  constexpr uint64_t kCount = 1 << 22;
  const strata_stream_t side = *host_->create_stream("side");
  const strata_event_t event = *host_->create_event();
  auto* a = static_cast<float*>(memory(kCount * 4));
  auto* b = static_cast<float*>(memory(kCount * 4));
  std::vector<float> ones(kCount, 1.0F);
  ASSERT_TRUE(host_->copy(host_->compute_stream(), a, ones.data(), kCount * 4).ok());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(host_->scale(host_->compute_stream(), a, STRATA_DTYPE_F32, 2, kCount).ok());
  }
  ASSERT_TRUE(host_->record(event, host_->compute_stream()).ok());
  ASSERT_TRUE(host_->wait(side, event).ok());
  ASSERT_TRUE(host_->copy(side, b, a, kCount * 4).ok());
  std::vector<float> result(kCount);
  ASSERT_TRUE(host_->copy(side, result.data(), b, kCount * 4).ok());
  finish(side);
  EXPECT_EQ(result, std::vector<float>(kCount, 1024.0F));
  EXPECT_TRUE(host_->destroy_stream(side).ok());
  host_->destroy_event(event);
  EXPECT_TRUE(host_->free(a).ok());
  EXPECT_TRUE(host_->free(b).ok());
}

}  // namespace
}  // namespace strata::device
