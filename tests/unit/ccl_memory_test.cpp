// Memory that peers map: where a pointer lies, and what happens to it when it is freed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "strata/ccl_cpu/shared_memory.h"

namespace strata::ccl {
namespace {

class CclMemory : public ::testing::Test {
 protected:
  char* allocate(size_t bytes) {
    void* data = nullptr;
    const Failure failure = memory_.allocate(bytes, &data);
    EXPECT_FALSE(failure.happened()) << failure.text;
    return static_cast<char*>(data);
  }
  SharedMemory& memory_ = SharedMemory::of_this_process();
};

TEST_F(CclMemory, FindsRangesInsideARegionAndNoOthers) {
  char* data = allocate(10000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0U);
  EXPECT_NE(memory_.find(data, 10000).address.region, 0U);
  EXPECT_EQ(memory_.find(data + 100, 50).address.offset, 100U);
  EXPECT_EQ(memory_.find(data + 100, 20000).address.region, 0U);
  EXPECT_EQ(memory_.find(data - 1, 1).address.region, 0U);
  int elsewhere = 0;
  EXPECT_EQ(memory_.find(&elsewhere, 4).address.region, 0U);
  EXPECT_TRUE(memory_.free(data));
}

TEST_F(CclMemory, NeverTakesANewRegionForAFreedOne) {
  char* first = allocate(4096);
  const SharedAddress old = memory_.find(first, 1).address;
  EXPECT_TRUE(memory_.free(first));
  char* second = allocate(4096);
  EXPECT_NE(memory_.find(second, 1).address.region, old.region);
  char* data = nullptr;
  std::shared_ptr<Region> pin;
  const Failure failure = memory_.map(::getpid(), old, 1, &data, &pin);
  EXPECT_EQ(failure.code, STRATA_E_STATE);
  EXPECT_NE(failure.text.find("was freed"), std::string::npos) << failure.text;
  EXPECT_TRUE(memory_.free(second));
}

TEST_F(CclMemory, StaysReadableWhileACollectiveStillHoldsIt) {
  char* data = allocate(4096);
  data[5] = 'x';
  const SharedRange held = memory_.find(data, 4096);
  EXPECT_TRUE(memory_.free(data));
  EXPECT_EQ(data[5], 0);  // given back to the system, still mapped
}

TEST_F(CclMemory, RefusesToFreeWhatItDoesNotKnow) {
  int elsewhere = 0;
  EXPECT_FALSE(memory_.free(&elsewhere));
  char* data = allocate(0);
  EXPECT_NE(data, nullptr);
  EXPECT_FALSE(memory_.free(data + 1));
  EXPECT_TRUE(memory_.free(data));
  EXPECT_FALSE(memory_.free(data));
}

TEST_F(CclMemory, RefusesARangeBeyondTheRegion) {
  char* data = allocate(4096);
  SharedAddress address = memory_.find(data, 4096).address;
  char* seen = nullptr;
  std::shared_ptr<Region> pin;
  EXPECT_FALSE(memory_.map(::getpid(), address, 4096, &seen, &pin).happened());
  EXPECT_EQ(seen, data);
  EXPECT_TRUE(memory_.map(::getpid(), address, 4097, &seen, &pin).happened());
  address.offset = ~uint64_t{0};
  EXPECT_TRUE(memory_.map(::getpid(), address, 2, &seen, &pin).happened());
  EXPECT_TRUE(memory_.free(data));
}

}  // namespace
}  // namespace strata::ccl
