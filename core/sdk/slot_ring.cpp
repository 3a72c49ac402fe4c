#include "strata/sdk/slot_ring.h"

#include <algorithm>

namespace strata::sdk {

SlotRing::SlotRing(strata_host_t* host, uint32_t unit_count, uint32_t shared, uint64_t shared_bytes,
                   int32_t tag, uint32_t flags, const char* label)
    : host_(host), tag_(tag), flags_(flags), own_(unit_count, STRATA_NONE) {
  for (uint32_t i = 0; i < shared && shared_bytes > 0; ++i) {
    free_.push_back(add_slot(shared_bytes, label));
  }
}

void SlotRing::add_own(uint32_t unit, uint64_t bytes, const char* label) {
  own_[unit] = add_slot(bytes, label);
}

uint32_t SlotRing::add_slot(uint64_t bytes, const char* label) {
  Slot slot;
  slot.memory = Buffer(host_, STRATA_PLACE_DEVICE, tag_, bytes, flags_, label);
  slot.released = Event(host_);
  slot.ready = Event(host_);
  slots_.push_back(std::move(slot));
  return static_cast<uint32_t>(slots_.size() - 1);
}

SlotRing::Slot* SlotRing::find(uint32_t unit) {
  const auto at = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.state != State::kFree && slot.unit == unit;
  });
  return at == slots_.end() ? nullptr : &*at;
}

SlotRing::Slot* SlotRing::take(uint32_t unit) {
  uint32_t index = own_[unit];
  if (index == STRATA_NONE) {
    if (free_.empty()) return nullptr;
    index = free_.front();
    free_.erase(free_.begin());
  }
  Slot& slot = slots_[index];
  slot.state = State::kFilled;
  slot.unit = unit;
  slot.taken = ++takes_;
  return &slot;
}

SlotRing::Slot* SlotRing::take_or_evict(uint32_t unit) {
  if (Slot* slot = take(unit)) return slot;
  uint32_t oldest = STRATA_NONE;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const bool is_evictable =
        slots_[i].state == State::kFilled && own_[slots_[i].unit] == STRATA_NONE;
    if (!is_evictable) continue;
    if (oldest == STRATA_NONE || slots_[i].taken < slots_[oldest].taken) oldest = i;
  }
  if (oldest == STRATA_NONE) return nullptr;
  free(oldest);
  return take(unit);
}

SlotRing::Slot* SlotRing::lend(uint32_t unit) {
  Slot* slot = find(unit);
  slot->state = State::kLent;
  return slot;
}

void SlotRing::release(uint32_t unit, strata_stream_t compute) {
  Slot* slot = find(unit);
  if (slot == nullptr) return;
  slot->released.record(compute);
  free(static_cast<uint32_t>(slot - slots_.data()));
}

void SlotRing::free(uint32_t index) {
  Slot& slot = slots_[index];
  if (own_[slot.unit] == STRATA_NONE) free_.push_back(index);
  slot.state = State::kFree;
  slot.unit = STRATA_NONE;
}

std::vector<uint32_t> SlotRing::holders() const {
  std::vector<uint32_t> units;
  for (const Slot& slot : slots_) {
    if (slot.state != State::kFree) units.push_back(slot.unit);
  }
  return units;
}

}  // namespace strata::sdk
