// Memory for whole units: a few slots with stable addresses, handed from unit to unit.
//
// A slot of the ring serves any unit that fits; a unit with a slot of its own always gets that one.
// What is queued in the compute stream may still read or write a slot when it is released: so a
// release records an event, and whoever fills the slot next makes its stream wait for it. Note [A
// launch is not a completion].
//
//   kFree       nobody's; the event `released` may still be ahead
//   kFilling    a unit's; its content may be read behind `ready`
//   kHeld       a unit's; the host was told of it
#ifndef STRATA_SDK_SLOT_RING_H_
#define STRATA_SDK_SLOT_RING_H_

#include <cstdint>
#include <vector>

#include "strata/sdk/host.h"

namespace strata::sdk {

class SlotRing {
 public:
  struct Slot {
    Buffer memory;
    Event released;  // recorded in the compute stream
    Event ready;     // recorded by whoever fills it
    uint32_t unit = STRATA_NONE;
  };

  SlotRing() = default;
  // `shared` slots of `shared_bytes` each, tagged and labelled for the host's counters; none of 0
  // bytes.
  SlotRing(strata_host_t* host, uint32_t unit_count, uint32_t shared, uint64_t shared_bytes,
           int32_t tag, uint32_t flags, const char* label);
  // Gives a unit a slot of its own.
  void add_own(uint32_t unit, uint64_t bytes, const char* label);

  // The slot that holds the unit, or null.
  Slot* find(uint32_t unit);
  // Takes a slot for a unit that has none: its own, or the shared one that was released longest
  // ago. Null if none is free.
  Slot* take(uint32_t unit);
  // Gives the unit's slot back: it may be filled again behind what is in `compute` now.
  void release(uint32_t unit, strata_stream_t compute);
  // Units that hold a slot now.
  std::vector<uint32_t> holders() const;

 private:
  strata_host_t* host_ = nullptr;
  int32_t tag_ = 0;
  uint32_t flags_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> own_;   // by unit: index of its slot, or STRATA_NONE
  std::vector<uint32_t> free_;  // shared slots, longest free first
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_SLOT_RING_H_
