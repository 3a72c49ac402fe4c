// A fixed set of buffers with stable addresses that go from unit to unit.
//
// A slot of the ring serves any unit that fits; a unit with a slot of its own always gets that one.
// Note [A launch is not a completion]: what is queued in the compute stream may still read or write
// a slot when it is released, and what fills it may still run when it is handed out. So a release
// records an event for whoever fills the slot next, and a filling one for whoever reads it.
#ifndef STRATA_SDK_SLOT_RING_H_
#define STRATA_SDK_SLOT_RING_H_

#include <cstdint>
#include <vector>

#include "strata/sdk/host.h"

namespace strata::sdk {

class SlotRing {
 public:
  enum class State {
    kFree,    // nobody's; what it held may still be in use until `released` has passed
    kFilled,  // a unit's, filled or being filled: read it behind `ready`
    kLent,    // the same, and the host was told of it: it stays until release()
  };
  struct Slot {
    Buffer memory;
    Event released;  // recorded in the compute stream
    Event ready;     // recorded by whoever fills it
    State state = State::kFree;
    uint32_t unit = STRATA_NONE;
    uint64_t taken = 0;  // when, counted in takes
  };

  SlotRing() = default;
  // `shared` slots of `shared_bytes` each, tagged and labelled for the host's counters; none of 0
  // bytes.
  SlotRing(strata_host_t* host, uint32_t unit_count, uint32_t shared, uint64_t shared_bytes,
           int32_t tag, uint32_t flags, const char* label);
  // Gives a unit a slot of its own. Pointers to slots end here.
  void add_own(uint32_t unit, uint64_t bytes, const char* label);

  // The slot that holds the unit, or null.
  Slot* find(uint32_t unit);
  // Takes a slot for a unit that has none, kFilled from now on: its own, or the shared one that was
  // released longest ago. Null if none is free.
  Slot* take(uint32_t unit);
  // As take(); if none is free, the one that was filled longest ago for a unit that the host was
  // never told of. REQUIRES: one stream fills all slots, so that the fillings are in order.
  Slot* take_or_evict(uint32_t unit);
  // REQUIRES: the unit holds a slot.
  Slot* lend(uint32_t unit);
  // Gives the unit's slot back, if it has one: it may be filled again behind what is in `compute`.
  void release(uint32_t unit, strata_stream_t compute);
  // Units that hold a slot now, for example for giving back all.
  std::vector<uint32_t> holders() const;

 private:
  uint32_t add_slot(uint64_t bytes, const char* label);
  void free(uint32_t index);

  strata_host_t* host_ = nullptr;
  int32_t tag_ = 0;
  uint32_t flags_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> own_;   // by unit: index of its slot, or STRATA_NONE
  std::vector<uint32_t> free_;  // shared slots, longest free first
  uint64_t takes_ = 0;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_SLOT_RING_H_
