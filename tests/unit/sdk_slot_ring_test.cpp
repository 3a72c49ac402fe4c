// The ring of buffers: who holds a slot, who gets the next one, and behind which events.
#include <gtest/gtest.h>

#include <set>

#include "strata/sdk/slot_ring.h"
#include "tests/unit/device_fixture.h"

namespace strata::sdk {
namespace {

class ASlotRing : public ::testing::Test {
 protected:
  ASlotRing() : host_(device::make_host()) {
    strata_hello_t hello{};
    hello.get_table = &device::Host::table;
    EXPECT_EQ(services().fetch(&hello), nullptr);
    ring_ = SlotRing(host_->abi(), 6, 2, 1024, STRATA_TAG_GATHERED, 0, "a slot");
    ring_.add_own(0, 4096, "the root");
  }

  strata_stream_t compute() const { return host_->compute_stream(); }
  uint64_t gathered() const { return host_->memory_stats().used_of(STRATA_TAG_GATHERED); }

  std::unique_ptr<device::Host> host_;
  SlotRing ring_;
};

TEST_F(ASlotRing, AllocatesOnceAndGivesBackAll) {
  EXPECT_EQ(gathered(), 2 * 1024u + 4096u);
  for (const uint32_t unit : {1u, 2u, 0u}) ring_.take(unit);
  EXPECT_EQ(gathered(), 2 * 1024u + 4096u);
  ring_ = {};
  EXPECT_EQ(gathered(), 0u);
}

TEST_F(ASlotRing, OfNoBytesHasNoSlots) {
  SlotRing empty(host_->abi(), 2, 3, 0, STRATA_TAG_GATHERED, 0, "nothing");
  EXPECT_EQ(empty.take(0), nullptr);
}

TEST_F(ASlotRing, HasAsManySharedSlotsAsAskedFor) {
  EXPECT_NE(ring_.take(1), nullptr);
  EXPECT_NE(ring_.take(2), nullptr);
  EXPECT_EQ(ring_.take(3), nullptr);
  EXPECT_EQ(ring_.find(3), nullptr);
  ring_.release(1, compute());
  EXPECT_NE(ring_.take(3), nullptr);
}

TEST_F(ASlotRing, KeepsTheRootInASlotOfItsOwnAtOneAddress) {
  void* const address = ring_.take(0)->memory.data();
  ring_.release(0, compute());
  ring_.take(1);
  ring_.take(2);
  SlotRing::Slot* root = ring_.take(0);
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(root->memory.data(), address);
  EXPECT_EQ(root->memory.bytes(), 4096u);
}

TEST_F(ASlotRing, GivesTheSlotThatWasReleasedLongestAgo) {
  void* const first = ring_.take(1)->memory.data();
  void* const second = ring_.take(2)->memory.data();
  ring_.release(2, compute());
  ring_.release(1, compute());
  EXPECT_EQ(ring_.take(3)->memory.data(), second);
  EXPECT_EQ(ring_.take(4)->memory.data(), first);
}

TEST_F(ASlotRing, EvictsTheOldestThatTheHostWasNotToldOf) {
  ring_.take(1);
  ring_.take(2);
  EXPECT_NE(ring_.take_or_evict(3), nullptr);
  EXPECT_EQ(ring_.find(1), nullptr);
  EXPECT_NE(ring_.find(2), nullptr);
  ring_.lend(3);
  EXPECT_NE(ring_.take_or_evict(4), nullptr);
  EXPECT_EQ(ring_.find(2), nullptr) << "the lent one stays";
  EXPECT_NE(ring_.find(3), nullptr);
}

TEST_F(ASlotRing, EvictsNothingThatTheHostHas) {
  for (const uint32_t unit : {1u, 2u}) {
    ring_.take(unit);
    ring_.lend(unit);
  }
  ring_.take(0);  // the root's slot serves nobody else
  EXPECT_EQ(ring_.take_or_evict(3), nullptr);
  EXPECT_EQ(ring_.holders(), (std::vector<uint32_t>{1, 2, 0}));
}

TEST_F(ASlotRing, ForgetsThatAUnitWasLentWhenItIsReleased) {
  ring_.take(1);
  EXPECT_EQ(ring_.lend(1)->state, SlotRing::State::kLent);
  ring_.release(1, compute());
  EXPECT_EQ(ring_.take(2)->state, SlotRing::State::kFilled);
  ring_.release(5, compute());  // holds none
  EXPECT_EQ(ring_.holders(), (std::vector<uint32_t>{2}));
}

TEST_F(ASlotRing, RecordsAnEventBehindWhatMayStillUseTheSlot) {
  Stream stream(host_->abi(), "work");
  device::Gate gate;
  ASSERT_EQ(device::enqueue(stream.get(), [&] { gate.pass(); }), STRATA_OK);
  SlotRing::Slot* slot = ring_.take(1);
  EXPECT_TRUE(slot->released.has_passed()) << "nobody used it yet";
  ring_.release(1, stream.get());
  EXPECT_FALSE(slot->released.has_passed());
  gate.open();
  slot->released.synchronize("the work");
  EXPECT_TRUE(slot->released.has_passed());
}

}  // namespace
}  // namespace strata::sdk
