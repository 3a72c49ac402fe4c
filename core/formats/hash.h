// XXH3-64 of a stream of bytes: the same value in whatever parts the bytes come.
#ifndef STRATA_FORMATS_HASH_H_
#define STRATA_FORMATS_HASH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace strata::formats {

class Hash64 {
 public:
  Hash64();
  Hash64(Hash64&&) noexcept;
  Hash64& operator=(Hash64&&) noexcept;
  ~Hash64();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }

  // Of all bytes so far; more may follow.
  uint64_t value() const;
  // The value as 16 lower-case hex digits, the form in which xxhsum prints it.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash64_hex(std::span<const std::byte> bytes);
std::string hash64_hex(std::string_view text);

}  // namespace strata::formats

#endif  // STRATA_FORMATS_HASH_H_
