#include "strata/data/byte_alphabet.h"

#include "strata/data/utf8.h"

namespace strata::data {
namespace {

constexpr int kCharacters = 256 + 68;

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<int, 256> character;       // of a byte
  std::array<int, kCharacters> byte;    // of a character, -1 if none
  std::array<uint8_t, 256> in_order{};  // bytes by character

  Alphabet() {
    byte.fill(-1);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? b : next++;
      byte[character[b]] = b;
    }
    size_t count = 0;
    for (const int b : byte)
      if (b >= 0) in_order[count++] = static_cast<uint8_t>(b);
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

const std::array<uint8_t, 256>& bytes_in_alphabet_order() { return alphabet().in_order; }

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const int c = alphabet().character[static_cast<uint8_t>(byte)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

std::optional<std::string> from_alphabet(std::string_view spelling) {
  std::string out;
  while (!spelling.empty()) {
    const Utf8Step step = utf8_step(spelling);
    if (!step.is_valid || step.length > 2) return std::nullopt;
    int c = static_cast<uint8_t>(spelling[0]);
    if (step.length == 2) c = (c & 0x1F) << 6 | (static_cast<uint8_t>(spelling[1]) & 0x3F);
    if (c >= kCharacters || alphabet().byte[c] < 0) return std::nullopt;
    out += static_cast<char>(alphabet().byte[c]);
    spelling.remove_prefix(step.length);
  }
  return out;
}

}  // namespace strata::data
