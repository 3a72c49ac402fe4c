// The accounting allocator: counters, limits and their texts, misuse, where bytes come from.
#include <dlfcn.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "strata/device/process_stats.h"
#include "tests/unit/device_fixture.h"

namespace strata::device {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

void* must_allocate(Host& host, int32_t place, int32_t tag, uint64_t bytes, uint32_t flags = 0) {
  const Result<void*> made = host.allocate({place, tag, flags, bytes, 0, "test block"});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : nullptr;
}

TEST(DeviceMemory, CountsByPlaceAndTagAndKeepsThePeakOfTheSum) {
  const auto host = make_host();
  void* gradients = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_GRADIENTS, 1000);
  EXPECT_TRUE(host->free(gradients).ok());
  void* parameters = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS, 700);
  void* optimizer = must_allocate(*host, STRATA_PLACE_HOST, STRATA_TAG_OPTIMIZER, 600);

  const MemoryStats stats = host->memory_stats();
  EXPECT_EQ(stats.device.used[STRATA_TAG_GRADIENTS], 0);
  EXPECT_EQ(stats.device.peak[STRATA_TAG_GRADIENTS], 1000);
  EXPECT_EQ(stats.device.used[STRATA_TAG_PARAMETERS], 700);
  EXPECT_EQ(stats.device.used_total, 700);
  EXPECT_EQ(stats.device.peak_total, 1000);  // not 1700: the two never lived together
  EXPECT_EQ(stats.host.used[STRATA_TAG_OPTIMIZER], 600);
  EXPECT_EQ(stats.used_total, 1300);
  EXPECT_EQ(stats.peak_total, 1300);  // of both places together
  EXPECT_EQ(stats.used_of(STRATA_TAG_OPTIMIZER), 600);

  host->reset_memory_peaks();
  EXPECT_EQ(host->memory_stats().device.peak_total, 700);
  EXPECT_EQ(host->memory_stats().device.peak[STRATA_TAG_GRADIENTS], 0);
  EXPECT_TRUE(host->free(parameters).ok());
  EXPECT_TRUE(host->free(optimizer).ok());
  EXPECT_EQ(host->memory_stats().used_total, 0);
}

TEST(DeviceMemory, CountersEqualARandomHistoryExactly) {
  const auto host = make_host();
  std::mt19937 random(7);
  struct Live {
    void* data;
    int32_t tag;
    uint64_t bytes;
  };
  std::vector<Live> live;
  std::array<uint64_t, STRATA_TAG_COUNT> used{};
  uint64_t total = 0;
  uint64_t peak = 0;
  for (int step = 0; step < 2000; ++step) {
    if (live.empty() || random() % 3 != 0) {
      const auto tag = static_cast<int32_t>(1 + random() % (STRATA_TAG_COUNT - 1));
      const uint64_t bytes = 1 + random() % 5000;
      live.push_back({must_allocate(*host, STRATA_PLACE_DEVICE, tag, bytes), tag, bytes});
      used[tag] += bytes;
      total += bytes;
      peak = std::max(peak, total);
    } else {
      const size_t index = random() % live.size();
      ASSERT_TRUE(host->free(live[index].data).ok());
      used[live[index].tag] -= live[index].bytes;
      total -= live[index].bytes;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  const MemoryStats stats = host->memory_stats();
  EXPECT_EQ(stats.device.used, used);
  EXPECT_EQ(stats.device.used_total, total);
  EXPECT_EQ(stats.device.peak_total, peak);
  for (const Live& block : live) EXPECT_TRUE(host->free(block.data).ok());
}

TEST(DeviceMemory, ALimitEndsWithATextThatSaysWhatWasAskedAndWhatIsInUse) {
  HostConfig config;
  config.device_limit = 100 * kMiB;
  const auto host = make_host(config);
  void* parameters = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_PARAMETERS, 60 * kMiB);
  void* gone = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_STAGING, 30 * kMiB);
  EXPECT_TRUE(host->free(gone).ok());

  const Result<void*> refused = host->allocate(
      {STRATA_PLACE_DEVICE, STRATA_TAG_GATHERED, 0, 48 * kMiB, 0, "fsdp ring slot 2"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kOutOfMemory);
  const std::string& text = refused.status().message();
  EXPECT_THAT(text, HasSubstr("'fsdp ring slot 2' (gathered)"));
  EXPECT_THAT(text, HasSubstr("48.0 MiB"));
  EXPECT_THAT(text, HasSubstr("limit is 100.0 MiB"));
  EXPECT_THAT(text, HasSubstr("40.0 MiB are left"));
  EXPECT_THAT(text, HasSubstr("parameters 60.0 MiB"));
  EXPECT_THAT(text, HasSubstr("peak 90.0 MiB"));
  EXPECT_THAT(text, HasSubstr("HINT:"));
  EXPECT_EQ(host->memory_stats().device.used_total, 60 * kMiB);
  EXPECT_EQ(host->memory_stats().device.peak_total, 90 * kMiB);

  // The last byte of the limit may be used, and other places have other limits.
  void* rest = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 40 * kMiB);
  void* elsewhere = must_allocate(*host, STRATA_PLACE_HOST, STRATA_TAG_OTHER, 200 * kMiB);
  for (void* data : {parameters, rest, elsewhere}) EXPECT_TRUE(host->free(data).ok());
}

TEST(DeviceMemory, PinnedAndHostMemoryShareOneLimit) {
  HostConfig config;
  config.host_limit = 1000;
  const auto host = make_host(config);
  void* pinned = must_allocate(*host, STRATA_PLACE_PINNED, STRATA_TAG_OTHER, 600);
  EXPECT_EQ(host->allocate({STRATA_PLACE_HOST, STRATA_TAG_OTHER, 0, 401, 0, "x"}).status().code(),
            Code::kOutOfMemory);
  void* plain = must_allocate(*host, STRATA_PLACE_HOST, STRATA_TAG_OTHER, 400);
  EXPECT_TRUE(host->free(pinned).ok());
  EXPECT_TRUE(host->free(plain).ok());
}

TEST(DeviceMemory, BytesOfOthersCountTowardsPeaksButNotAgainstLimits) {
  HostConfig config;
  config.device_limit = 1000;
  const auto host = make_host(config);
  host->count_external(STRATA_PLACE_DEVICE, STRATA_TAG_ACTIVATIONS, 5000);
  void* data = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 1000);
  EXPECT_EQ(host->memory_stats().device.peak_total, 6000);
  host->count_external(STRATA_PLACE_DEVICE, STRATA_TAG_ACTIVATIONS, -5000);
  EXPECT_EQ(host->memory_stats().device.used_total, 1000);
  EXPECT_TRUE(host->free(data).ok());
}

TEST(DeviceMemory, TellsADoubleFreeFromAForeignPointer) {
  const auto host = make_host();
  void* data = must_allocate(*host, STRATA_PLACE_HOST, STRATA_TAG_OTHER, 64);
  EXPECT_TRUE(host->free(data).ok());
  const Status twice = host->free(data);
  EXPECT_EQ(twice.code(), Code::kInvalidArgument);
  EXPECT_THAT(twice.message(), HasSubstr("'test block') was already freed"));
  int foreign = 0;
  EXPECT_THAT(host->free(&foreign).message(), HasSubstr("was not allocated by this host"));
  EXPECT_TRUE(host->free(nullptr).ok());

  (void)take_error();
  memory_table().free(host->abi(), &foreign);  // nothing can be returned: the sink has it
  EXPECT_EQ(take_error().status, STRATA_E_INVALID_ARGUMENT);
}

TEST(DeviceMemory, HonoursAlignmentAndZeroesOnDemand) {
  const auto host = make_host();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{100}, uint64_t{300000}, 3 * kMiB + 5}) {
    for (const uint64_t alignment : {0, 1, 8, 64, 4096}) {
      // Dirty memory first, so that zero bytes are somebody's work.
      for (int pass = 0; pass < 2; ++pass) {
        const Result<void*> made =
            host->allocate({STRATA_PLACE_HOST, STRATA_TAG_OTHER, STRATA_MEMORY_ZEROED, bytes,
                            alignment, "aligned"});
        ASSERT_TRUE(made.ok()) << made.status().message();
        EXPECT_EQ(reinterpret_cast<uintptr_t>(*made) % (alignment == 0 ? 256 : alignment), 0);
        const auto* content = static_cast<const unsigned char*>(*made);
        EXPECT_TRUE(std::all_of(content, content + bytes, [](unsigned char c) { return c == 0; }));
        std::memset(*made, 0xAB, bytes);
        EXPECT_TRUE(host->free(*made).ok());
      }
    }
  }
}

TEST(DeviceMemory, RefusesRequestsThatMakeNoSense) {
  const auto host = make_host();
  EXPECT_THAT(host->allocate({9, STRATA_TAG_OTHER, 0, 1, 0, "x"}).status().message(),
              HasSubstr("place 9"));
  EXPECT_THAT(host->allocate({STRATA_PLACE_HOST, 8, 0, 1, 0, "x"}).status().message(),
              HasSubstr("tag 8"));
  EXPECT_THAT(
      host->allocate({STRATA_PLACE_HOST, STRATA_TAG_OTHER, 0, 1, 24, "x"}).status().message(),
      HasSubstr("alignment 24"));
  EXPECT_THAT(
      host->allocate({STRATA_PLACE_HOST, STRATA_TAG_OTHER, 64, 1, 0, "x"}).status().message(),
      HasSubstr("flags"));
  const Result<void*> huge =
      host->allocate({STRATA_PLACE_HOST, STRATA_TAG_OTHER, 0, UINT64_MAX, 0, "everything"});
  EXPECT_EQ(huge.status().code(), Code::kOutOfMemory);
  EXPECT_EQ(host->memory_stats().peak_total, 0);
  const Result<void*> nothing =
      host->allocate({STRATA_PLACE_HOST, STRATA_TAG_OTHER, 0, 0, 0, "nothing"});
  EXPECT_TRUE(nothing.ok());
  EXPECT_EQ(*nothing, nullptr);
}

TEST(DeviceMemory, FreedMemoryGoesBackToTheSystem) {
  const auto host = make_host();
  const uint64_t before = *resident_size();
  void* data = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 64 * kMiB);
  std::memset(data, 1, 64 * kMiB);
  EXPECT_GT(*resident_size(), before + 60 * kMiB);
  EXPECT_TRUE(host->free(data).ok());
  EXPECT_LT(*resident_size(), before + 8 * kMiB);
  EXPECT_GE(*resident_peak(), before + 60 * kMiB);
  EXPECT_GT(*proportional_set_size(), 0);
}

TEST(DeviceMemory, MemoryForCollectivesComesFromTheCommunicationLibrary) {
  void* library = dlopen(STRATA_CCL_DOUBLE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto allocations = reinterpret_cast<int (*)()>(dlsym(library, "double_allocations"));
  const auto frees = reinterpret_cast<int (*)()>(dlsym(library, "double_frees"));
  HostConfig config;
  config.world.size = 2;
  config.store = std::make_shared<InProcessStore>();
  config.ccl_library = STRATA_CCL_DOUBLE;
  const int before = allocations();
  {
    const auto host = make_host(config);
    void* shared = must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_GATHERED, 10000,
                                 STRATA_MEMORY_COLLECTIVE | STRATA_MEMORY_ZEROED);
    EXPECT_EQ(allocations(), before + 1);
    EXPECT_EQ(static_cast<char*>(shared)[9999], 0);
    EXPECT_TRUE(host->free(shared).ok());
    EXPECT_EQ(frees(), before + 1);
    must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_GATHERED, 10, STRATA_MEMORY_COLLECTIVE);
    must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 10);  // plain: not theirs
    EXPECT_EQ(allocations(), before + 2);
  }
  EXPECT_EQ(frees(), before + 2);  // what was left over went back where it came from
  dlclose(library);
}

TEST(DeviceMemory, OneRankNeedsNoCommunicationLibrary) {
  const auto host = make_host();
  void* data =
      must_allocate(*host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 100, STRATA_MEMORY_COLLECTIVE);
  EXPECT_NE(data, nullptr);
  EXPECT_TRUE(host->free(data).ok());
}

TEST(DeviceMemory, ThreadsMayAllocateAtOnce) {
  const auto host = make_host();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) {
          void* data = must_allocate(*host, STRATA_PLACE_HOST, 1 + t, 100 + i);
          std::memset(data, t, 100 + i);
          EXPECT_TRUE(host->free(data).ok());
        }
      });
    }
  }
  EXPECT_EQ(host->memory_stats().used_total, 0);
  EXPECT_GE(host->memory_stats().peak_total, 599);
}

TEST(DeviceMemory, TheTableGivesTheSameCountersAndRespectsTheSizeOfItsStructs) {
  const auto host = make_host();
  strata_memory_request_t request{};
  request.struct_size = sizeof(request);
  request.place = STRATA_PLACE_PINNED;
  request.tag = STRATA_TAG_STAGING;
  request.bytes = 4242;
  void* data = nullptr;
  ASSERT_EQ(memory_table().alloc(host->abi(), &request, &data), STRATA_OK);
  strata_memory_stats_t stats{};
  stats.struct_size = sizeof(stats);
  stats.place = STRATA_PLACE_PINNED;
  ASSERT_EQ(memory_table().stats(host->abi(), &stats), STRATA_OK);
  EXPECT_EQ(stats.used[STRATA_TAG_STAGING], 4242);
  EXPECT_EQ(stats.used_total, 4242);
  memory_table().free(host->abi(), data);

  request.struct_size = STRATA_MEMORY_REQUEST_MIN_SIZE - 1;
  data = &stats;
  EXPECT_EQ(memory_table().alloc(host->abi(), &request, &data), STRATA_E_INVALID_ARGUMENT);
  EXPECT_EQ(data, nullptr);
  EXPECT_THAT(take_error().text, HasSubstr("memory.alloc"));
  EXPECT_EQ(memory_table().alloc(nullptr, &request, &data), STRATA_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace strata::device
