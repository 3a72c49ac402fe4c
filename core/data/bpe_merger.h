// Merges the bytes of one word into tokens: always the pair of lowest rank, leftmost first.
#ifndef STRATA_DATA_BPE_MERGER_H_
#define STRATA_DATA_BPE_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::data {

// What became of a pair: its place among the merges, and the id of both together.
struct Merge {
  int32_t rank;
  int32_t id;
};

// (left id, right id) -> Merge. A flat hash table: this lookup is what encoding spends its time on.
class PairTable {
 public:
  explicit PairTable(size_t expected = 0);
  // Replaces an earlier entry of this pair.
  void insert(int32_t left, int32_t right, Merge merge);
  // nullptr if the pair is not merged.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = pair_key(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static uint64_t pair_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // The high half of a product with 2^64 / golden ratio mixes all bits of the key.
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_;
  }
  void grow();

  std::vector<Slot> slots_;
  size_t mask_;
  size_t count_ = 0;
};

// Replaces `ids` (one a byte) by the ids of the word's tokens. Takes O(n log n) for long words.
void merge_word(const PairTable& pairs, std::vector<int32_t>& ids);

}  // namespace strata::data

#endif  // STRATA_DATA_BPE_MERGER_H_
