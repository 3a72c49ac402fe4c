// The CUDA device without a GPU: what it refuses, and its deadlines over a library that plays one.
#include <dlfcn.h>

#include <cstring>
#include <thread>

#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class DeviceCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(STRATA_CUDA_DOUBLE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    set_gpus(1);
    end_memory(0);
    config_.device = {STRATA_DEVICE_CUDA, 0};
    config_.device_library = STRATA_CUDA_DOUBLE;
    config_.timeout = milliseconds(50);
  }
  void TearDown() override { dlclose(library_); }

  template <typename Function>
  Function find(const char* name) {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void set_gpus(int count) { find<void (*)(int)>("double_set_gpus")(count); }
  void end_memory(int is_ended) { find<void (*)(int)>("double_end_memory")(is_ended); }
  void hold(strata_stream_t stream, int is_held) {
    find<void (*)(void*, int)>("double_hold")(stream, is_held);
  }
  Status refusal() {
    const Result<std::unique_ptr<Host>> host = Host::create(config_);
    EXPECT_FALSE(host.ok());
    return host.ok() ? Status() : host.status();
  }

  void* library_ = nullptr;
  HostConfig config_;
};

TEST_F(DeviceCuda, WithoutAGpuIsRefusedInOneSentence) {
  set_gpus(0);
  EXPECT_EQ(refusal().code(), Code::kUnsupported);
  EXPECT_THAT(refusal().message(), HasSubstr("shows no GPU (no device). HINT:"));
  set_gpus(2);
  config_.device.index = 2;
  EXPECT_THAT(refusal().message(), HasSubstr("GPU 2 was asked for, but there are 2"));
}

TEST_F(DeviceCuda, WithoutItsLibraryIsRefusedByPath) {
  config_.device_library = "/no/such/libstrata_device_cuda.so";
  EXPECT_EQ(refusal().code(), Code::kNotFound);
  EXPECT_THAT(refusal().message(), HasSubstr("'/no/such/libstrata_device_cuda.so'"));
  config_.device_library = "";
  EXPECT_THAT(refusal().message(), HasSubstr("HostConfig::device_library"));
  config_.device_library = STRATA_CCL_DOUBLE;  // a library, but another one
  EXPECT_THAT(refusal().message(), HasSubstr("is not the CUDA library of this build"));
}

TEST_F(DeviceCuda, CountsDevicePinnedAndHostMemory) {
  const auto host = make_host(config_);
  void* blocks[3] = {};
  const int32_t places[] = {STRATA_PLACE_DEVICE, STRATA_PLACE_PINNED, STRATA_PLACE_HOST};
  for (int i = 0; i < 3; ++i) {
    blocks[i] = *host->allocate({places[i], STRATA_TAG_OTHER, STRATA_MEMORY_ZEROED, 100, 0, "x"});
    EXPECT_EQ(static_cast<char*>(blocks[i])[99], 0);
  }
  EXPECT_EQ(host->memory_stats().device.used_total, 100);
  EXPECT_EQ(host->memory_stats().pinned.used_total, 100);
  EXPECT_EQ(host->memory_stats().host.used_total, 100);
  for (void* block : blocks) EXPECT_TRUE(host->free(block).ok());
  end_memory(1);
  const Status full =
      host->allocate({STRATA_PLACE_DEVICE, STRATA_TAG_GATHERED, 0, 4096, 0, "slot"}).status();
  EXPECT_EQ(full.code(), Code::kOutOfMemory);
  EXPECT_THAT(full.message(), HasSubstr("CUDA error 2 (out of memory)"));
  EXPECT_EQ(host->memory_stats().used_total, 0);
}

TEST_F(DeviceCuda, WaitsHaveDeadlinesAndSeeAnAbort) {
  const auto host = make_host(config_);
  const strata_stream_t side = *host->create_stream("side");
  const strata_event_t event = *host->create_event();
  EXPECT_TRUE(*host->query(event));
  hold(side, 1);
  ASSERT_TRUE(host->record(event, side).ok());
  EXPECT_FALSE(*host->query(event));
  EXPECT_TRUE(host->wait(host->compute_stream(), event).ok());  // queued: blocks nobody
  const Status late = host->synchronize(event, "the gather of unit 'block.3'", milliseconds(20));
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_THAT(late.message(), HasSubstr("waited 20 ms for the gather of unit 'block.3' on GPU 0"));
  EXPECT_EQ(host->destroy_stream(*host->create_stream("idle")).code(), Code::kOk);

  Status end;
  {
    std::jthread waiter([&] { end = host->synchronize(event, "it", std::chrono::seconds(30)); });
    host->abort("rank 1 died");
  }
  EXPECT_EQ(end.code(), Code::kAborted);
  hold(side, 0);
  EXPECT_TRUE(host->destroy_stream(side).ok());
  host->destroy_event(event);
}

TEST_F(DeviceCuda, AnErrorOfCudaHasItsWords) {
  const auto host = make_host(config_);
  float data[4] = {1, 2, 3, 4};
  EXPECT_TRUE(host->scale(host->compute_stream(), data, STRATA_DTYPE_F32, 2, 4).ok());
  EXPECT_EQ(data[3], 8);
  uint16_t half[4];
  const Status status =
      host->cast(host->compute_stream(), half, STRATA_DTYPE_BF16, data, STRATA_DTYPE_F32, 4);
  EXPECT_THAT(status.message(), HasSubstr("casting on GPU 0 failed with CUDA error 1"));
}

}  // namespace
}  // namespace strata::device
