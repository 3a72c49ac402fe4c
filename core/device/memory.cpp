#include "strata/device/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "strata/base/check.h"
#include "strata/base/log.h"
#include "strata/base/text.h"

namespace strata::device {
namespace {

using text::format_bytes;

constexpr uint64_t kDefaultAlignment = 256;
constexpr uint64_t kLargestAlignment = 4096;
constexpr const char* kTagNames[STRATA_TAG_COUNT] = {
    "", "parameters", "gradients", "optimizer", "gathered", "staging", "activations", "other"};

const char* place_name(int32_t place) {
  switch (place) {
    case STRATA_PLACE_DEVICE: return "device";
    case STRATA_PLACE_PINNED: return "pinned host";
    default: return "host";
  }
}

bool is_place(int32_t place) {
  return place == STRATA_PLACE_DEVICE || place == STRATA_PLACE_PINNED || place == STRATA_PLACE_HOST;
}

bool is_tag(int32_t tag) { return tag > 0 && tag < STRATA_TAG_COUNT; }

std::string describe_use(const PlaceStats& stats) {
  std::vector<std::string> parts;
  for (int32_t tag = 1; tag < STRATA_TAG_COUNT; ++tag) {
    if (stats.used[tag] > 0) {
      parts.push_back(fmt::format("{} {}", kTagNames[tag], format_bytes(stats.used[tag])));
    }
  }
  return parts.empty() ? "nothing" : text::join(parts);
}

}  // namespace

Memory::Memory(Backend& backend, uint64_t device_limit, uint64_t host_limit) : backend_(backend) {
  stats_.device.limit = device_limit;
  stats_.pinned.limit = host_limit;
  stats_.host.limit = host_limit;
}

Memory::~Memory() {
  for (const auto& [data, block] : blocks_) {
    log::warning("device: {} of {} memory for '{}' ({}) were never freed",
                 format_bytes(block.bytes), place_name(block.place), block.label,
                 kTagNames[block.tag]);
    backend_.free(block.place, block.is_collective, const_cast<void*>(data), block.bytes);
  }
}

Status Memory::check(const MemoryRequest& request) {
  if (!is_place(request.place)) {
    return invalid_argument(
        fmt::format("device: place {} for '{}'. HINT: STRATA_PLACE_DEVICE, _PINNED or _HOST",
                    request.place, request.label));
  }
  if (!is_tag(request.tag)) {
    return invalid_argument(
        fmt::format("device: tag {} for '{}' is not one of STRATA_TAG_* (1..{})", request.tag,
                    request.label, STRATA_TAG_COUNT - 1));
  }
  constexpr uint32_t kKnownFlags = STRATA_MEMORY_COLLECTIVE | STRATA_MEMORY_ZEROED;
  if ((request.flags & ~kKnownFlags) != 0) {
    return invalid_argument(fmt::format("device: unknown memory flags {:#x} for '{}'",
                                        request.flags & ~kKnownFlags, request.label));
  }
  if (request.alignment != 0 &&
      (!std::has_single_bit(request.alignment) || request.alignment > kLargestAlignment)) {
    return invalid_argument(
        fmt::format("device: alignment {} for '{}'. HINT: a power of two, at most {}",
                    request.alignment, request.label, kLargestAlignment));
  }
  return {};
}

PlaceStats& Memory::place(int32_t place) {
  return const_cast<PlaceStats&>(std::as_const(*this).place(place));
}

const PlaceStats& Memory::place(int32_t place) const {
  switch (place) {
    case STRATA_PLACE_DEVICE: return stats_.device;
    case STRATA_PLACE_PINNED: return stats_.pinned;
    default: return stats_.host;
  }
}

// Pinned and plain host memory share one limit.
uint64_t Memory::use_against_limit(int32_t place) const {
  if (place == STRATA_PLACE_DEVICE) {
    return stats_.device.used_total - external_[STRATA_PLACE_DEVICE];
  }
  return stats_.pinned.used_total + stats_.host.used_total - external_[STRATA_PLACE_PINNED] -
         external_[STRATA_PLACE_HOST];
}

Status Memory::refuse(const MemoryRequest& request, const std::string& why) const {
  const PlaceStats& stats = place(request.place);
  return out_of_memory(fmt::format(
      "device: tried to allocate {} of {} memory for '{}' ({}), {}. In use: {} ({}); peak {}. "
      "HINT: a smaller batch or more ranks, activation checkpointing, or a strategy that shards "
      "more",
      format_bytes(request.bytes), place_name(request.place), request.label, kTagNames[request.tag],
      why, format_bytes(stats.used_total), describe_use(stats), format_bytes(stats.peak_total)));
}

Result<void*> Memory::allocate(const MemoryRequest& request) {
  STRATA_RETURN_IF_ERROR(check(request));
  if (request.bytes == 0) return static_cast<void*>(nullptr);
  const bool is_collective = (request.flags & STRATA_MEMORY_COLLECTIVE) != 0;
  const uint64_t alignment = request.alignment == 0 ? kDefaultAlignment : request.alignment;
  Backend::Block block;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t limit = place(request.place).limit;
    const uint64_t used = use_against_limit(request.place);
    if (limit > 0 && (request.bytes > limit || used > limit - request.bytes)) {
      return refuse(request, fmt::format("but the limit is {} and {} are left", format_bytes(limit),
                                         format_bytes(limit - std::min(used, limit))));
    }
    Result<Backend::Block> made =
        backend_.allocate(request.place, is_collective, request.bytes, alignment);
    if (!made.ok()) {
      if (made.status().code() != Code::kOutOfMemory) return made.status();
      return refuse(request, made.status().message());
    }
    block = *made;
    blocks_[block.data] = {request.place, request.tag, is_collective, request.bytes, request.label};
    count(request.place, request.tag, static_cast<int64_t>(request.bytes));
  }
  if ((request.flags & STRATA_MEMORY_ZEROED) != 0 && !block.is_zero) {
    if (Status cleared = backend_.clear(request.place, block.data, request.bytes); !cleared.ok()) {
      (void)free(block.data);
      return cleared;
    }
  }
  return block.data;
}

Status Memory::free(void* memory) {
  if (memory == nullptr) return {};
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) {
      const auto before = std::find_if(freed_.rbegin(), freed_.rend(),
                                       [&](const Freed& freed) { return freed.data == memory; });
      if (before != freed_.rend()) {
        return invalid_argument(
            fmt::format("device: {} ('{}') was already freed", memory, before->label));
      }
      return invalid_argument(
          fmt::format("device: {} was not allocated by this host and is not freed", memory));
    }
    block = std::move(found->second);
    blocks_.erase(found);
    count(block.place, block.tag, -static_cast<int64_t>(block.bytes));
    remember_freed(memory, block.label);
  }
  backend_.free(block.place, block.is_collective, memory, block.bytes);
  return {};
}

void Memory::remember_freed(const void* data, std::string label) {
  if (freed_.size() == kFreedRemembered) freed_.pop_front();
  freed_.push_back({data, std::move(label)});
}

void Memory::count(int32_t where, int32_t tag, int64_t delta) {
  PlaceStats& stats = place(where);
  const auto change = static_cast<uint64_t>(delta);  // wraps for negative ones, as wanted
  stats.used[tag] += change;
  stats.used_total += change;
  stats_.used_total += change;
  stats.peak[tag] = std::max(stats.peak[tag], stats.used[tag]);
  stats.peak_total = std::max(stats.peak_total, stats.used_total);
  stats_.peak_total = std::max(stats_.peak_total, stats_.used_total);
}

void Memory::count_external(int32_t where, int32_t tag, int64_t delta) {
  STRATA_CHECK(is_place(where) && is_tag(tag)) << "place " << where << ", tag " << tag;
  const std::lock_guard lock(mutex_);
  external_[where] += static_cast<uint64_t>(delta);
  count(where, tag, delta);
}

MemoryStats Memory::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

Result<PlaceStats> Memory::place_stats(int32_t where) const {
  if (!is_place(where)) {
    return invalid_argument(fmt::format(
        "device: place {} has no counters. HINT: STRATA_PLACE_DEVICE, _PINNED or _HOST", where));
  }
  const std::lock_guard lock(mutex_);
  return place(where);
}

void Memory::abandon() {
  const std::lock_guard lock(mutex_);
  blocks_.clear();
}

void Memory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (PlaceStats* stats : {&stats_.device, &stats_.pinned, &stats_.host}) {
    stats->peak = stats->used;
    stats->peak_total = stats->used_total;
  }
  stats_.peak_total = stats_.used_total;
}

}  // namespace strata::device
