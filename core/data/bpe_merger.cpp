#include "strata/data/bpe_merger.h"

#include <limits>
#include <queue>
#include <tuple>
#include <utility>

namespace strata::data {
namespace {

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
// Up to here, scanning all pairs beats a heap.
constexpr size_t kShortWord = 48;

void merge_short_word(const PairTable& pairs, std::vector<int32_t>& ids) {
  Merge merges[kShortWord];  // of ids[i] with ids[i + 1]
  const auto look_up = [&](size_t i) {
    const Merge* merge = pairs.find(ids[i], ids[i + 1]);
    merges[i] = merge ? *merge : Merge{kNoRank, -1};
  };
  size_t size = ids.size();
  for (size_t i = 0; i + 1 < size; ++i) look_up(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == kNoRank) break;
    ids[best] = merges[best].id;
    --size;
    for (size_t i = best + 1; i < size; ++i) {
      ids[i] = ids[i + 1];
      merges[i] = merges[i + 1];
    }
    if (best + 1 < size) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.resize(size);
}

// The tokens as a doubly linked list; a heap of candidates, of which outdated ones are passed over.
class LongWord {
 public:
  LongWord(const PairTable& pairs, std::vector<int32_t>& ids) : pairs_(pairs), ids_(ids) {
    const auto size = static_cast<int32_t>(ids.size());
    previous_.resize(ids.size());
    next_.resize(ids.size());
    for (int32_t i = 0; i < size; ++i) {
      previous_[i] = i - 1;
      next_[i] = i + 1 < size ? i + 1 : kNone;
    }
    for (int32_t i = 0; i + 1 < size; ++i) add_candidate(i);
  }

  void merge() {
    while (!heap_.empty()) {
      const Candidate candidate = heap_.top();
      heap_.pop();
      const int32_t left = candidate.left, right = next_[left];
      if (ids_[left] != candidate.left_id || right == kNone || ids_[right] != candidate.right_id)
        continue;
      ids_[left] = candidate.merged_id;
      ids_[right] = kGone;
      next_[left] = next_[right];
      if (next_[left] != kNone) previous_[next_[left]] = left;
      add_candidate(left);
      if (previous_[left] != kNone) add_candidate(previous_[left]);
    }
    size_t size = 0;
    for (const int32_t id : ids_)
      if (id != kGone) ids_[size++] = id;
    ids_.resize(size);
  }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kGone = -1;
  struct Candidate {
    int32_t rank, left, left_id, right_id, merged_id;
    bool operator<(const Candidate& other) const {  // the heap's top is the largest
      return std::tie(rank, left) > std::tie(other.rank, other.left);
    }
  };

  void add_candidate(int32_t left) {
    const int32_t right = next_[left];
    if (right == kNone) return;
    if (const Merge* merge = pairs_.find(ids_[left], ids_[right]))
      heap_.push({merge->rank, left, ids_[left], ids_[right], merge->id});
  }

  const PairTable& pairs_;
  std::vector<int32_t>& ids_;
  std::vector<int32_t> previous_, next_;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

PairTable::PairTable(size_t expected) {
  size_t size = 16;
  while (size < 2 * expected) size *= 2;
  slots_.resize(size);
  mask_ = size - 1;
}

void PairTable::insert(int32_t left, int32_t right, Merge merge) {
  if (2 * (count_ + 1) > slots_.size()) grow();
  const uint64_t key = pair_key(left, right);
  size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kEmpty) ++count_;
  slots_[i] = {key, merge};
}

void PairTable::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t i = slot_of(slot.key);
    while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void merge_word(const PairTable& pairs, std::vector<int32_t>& ids) {
  if (ids.size() < 2) return;
  if (ids.size() <= kShortWord)
    merge_short_word(pairs, ids);
  else
    LongWord(pairs, ids).merge();
}

}  // namespace strata::data
