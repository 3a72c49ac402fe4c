#include "strata/sdk/slot_ring.h"

#include <algorithm>

namespace strata::sdk {

SlotRing::SlotRing(strata_host_t* host, uint32_t unit_count, uint32_t shared, uint64_t shared_bytes,
                   int32_t tag, uint32_t flags, const char* label)
    : host_(host), tag_(tag), flags_(flags), own_(unit_count, STRATA_NONE) {
  for (uint32_t i = 0; i < shared && shared_bytes > 0; ++i) {
    Slot slot;
    slot.memory = Buffer(host, STRATA_PLACE_DEVICE, tag, shared_bytes, flags, label);
    slot.released = Event(host);
    slot.ready = Event(host);
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.push_back(std::move(slot));
  }
}

void SlotRing::add_own(uint32_t unit, uint64_t bytes, const char* label) {
  Slot slot;
  slot.memory = Buffer(host_, STRATA_PLACE_DEVICE, tag_, bytes, flags_, label);
  slot.released = Event(host_);
  slot.ready = Event(host_);
  own_[unit] = static_cast<uint32_t>(slots_.size());
  slots_.push_back(std::move(slot));
}

SlotRing::Slot* SlotRing::find(uint32_t unit) {
  const auto at = std::find_if(slots_.begin(), slots_.end(),
                               [&](const Slot& slot) { return slot.unit == unit; });
  return at == slots_.end() ? nullptr : &*at;
}

SlotRing::Slot* SlotRing::take(uint32_t unit) {
  uint32_t index = own_[unit];
  if (index == STRATA_NONE) {
    if (free_.empty()) return nullptr;
    index = free_.front();
    free_.erase(free_.begin());
  }
  slots_[index].unit = unit;
  return &slots_[index];
}

void SlotRing::release(uint32_t unit, strata_stream_t compute) {
  Slot* slot = find(unit);
  if (slot == nullptr) return;
  slot->released.record(compute);
  slot->unit = STRATA_NONE;
  if (own_[unit] == STRATA_NONE) free_.push_back(static_cast<uint32_t>(slot - slots_.data()));
}

std::vector<uint32_t> SlotRing::holders() const {
  std::vector<uint32_t> units;
  for (const Slot& slot : slots_) {
    if (slot.unit != STRATA_NONE) units.push_back(slot.unit);
  }
  return units;
}

}  // namespace strata::sdk
