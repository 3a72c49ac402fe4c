// GPT-2's alphabet: each byte has a printable character, in which vocabulary files spell tokens.
//
// Printable Latin-1 stands for itself; the other 68 bytes are U+0100, U+0101, ... in order: a space
// is U+0120.
#ifndef STRATA_DATA_BYTE_ALPHABET_H_
#define STRATA_DATA_BYTE_ALPHABET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::data {

// All bytes, sorted by their characters: the ids 0 .. 255 of GPT-2's vocabulary.
const std::array<uint8_t, 256>& bytes_in_alphabet_order();

// Bytes in the spelling of vocabulary files, as UTF-8.
std::string to_alphabet(std::string_view bytes);

// The bytes of a spelling; nothing if a character is not of the alphabet.
std::optional<std::string> from_alphabet(std::string_view spelling);

}  // namespace strata::data

#endif  // STRATA_DATA_BYTE_ALPHABET_H_
