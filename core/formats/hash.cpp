#include "strata/formats/hash.h"

#include <fmt/format.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

namespace strata::formats {

struct Hash64::State {
  XXH3_state_t xxh;  // needs 64-byte alignment, which operator new gives it
};

Hash64::Hash64() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Hash64::Hash64(Hash64&&) noexcept = default;
Hash64& Hash64::operator=(Hash64&&) noexcept = default;
Hash64::~Hash64() = default;

void Hash64::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t Hash64::value() const { return XXH3_64bits_digest(&state_->xxh); }

std::string Hash64::hex() const { return fmt::format("{:016x}", value()); }

std::string hash64_hex(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string hash64_hex(std::string_view text) { return hash64_hex(std::as_bytes(std::span(text))); }

}  // namespace strata::formats
