#include "strata/ccl_cpu/collective.h"

#include <algorithm>
#include <cstring>

namespace strata::ccl {
namespace {

// From this size on a message pushes out of the caches what the next computation needs.
constexpr uint64_t kBypassBytes = 16 << 20;
// From this size on a staged piece goes past the caches; see Note [Staging past the caches].
constexpr uint64_t kBypassStageBytes = 32 << 10;
// How much is done between two looks at the abort flag.
constexpr uint64_t kStrideBytes = 4 << 20;

bool is_same_call(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.count == b.count && a.sequence == b.sequence;
}

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

Collective::Collective(RankLink& link, const Operation& operation, const void* send, void* receive)
    : link_(link),
      operation_(operation),
      send_(static_cast<const char*>(send)),
      receive_(static_cast<char*>(receive)),
      rank_(link.rank()),
      size_(link.size()),
      each_(element_size(operation.dtype)),
      views_(link.size()) {}

bool Collective::run() {
  if (has_failed()) return false;
  link_.mine().operation = operation_;
  switch (operation_.kind) {
    case Kind::kAllReduce: return all_reduce();
    case Kind::kReduceScatter: return reduce_scatter();
    case Kind::kAllGather:
    case Kind::kBroadcast: return spread();
  }
  return false;
}

bool Collective::meet(RankLink::Haste haste) {
  return link_.meet(kCollectives, haste, {"", &operation_});
}

// The first meeting: everybody has come, wants the same, and shows his buffers.
bool Collective::agree() {
  if (!meet(RankLink::Haste::kPatient)) return false;
  begin_ = Clock::now();
  const Operation& first = link_.slot(0).operation;
  for (uint32_t rank = 1; rank < size_; ++rank) {
    const Operation& other = link_.slot(rank).operation;
    if (is_same_call(first, other)) continue;
    link_.fail({STRATA_E_INVALID_ARGUMENT,
                "the ranks of communicator '" + link_.name() +
                    "' called different collectives: rank 0 " + describe(first) + ", rank " +
                    std::to_string(rank) + " " + describe(other) +
                    ". HINT: every rank makes the same calls in the same order"});
    return false;
  }
  return look_up_peers();
}

bool Collective::look_up_peers() {
  const bool is_gather = operation_.kind == Kind::kAllGather;
  const bool is_scatter = operation_.kind == Kind::kReduceScatter;
  const uint64_t bytes = operation_.count * each_;
  pins_.reserve(2 * size_);
  for (uint32_t rank = 0; rank < size_; ++rank) {
    const Operation& theirs = link_.slot(rank).operation;
    const pid_t pid = link_.slot(rank).pid.load(std::memory_order_relaxed);
    const auto look_up = [&](const SharedAddress& address, uint64_t length, char** data) {
      if (address.region == 0 || length == 0) return true;
      pins_.emplace_back();
      const Failure failure =
          SharedMemory::of_this_process().map(pid, address, length, data, &pins_.back());
      if (failure.happened()) link_.fail(failure);
      return !failure.happened();
    };
    char* send = nullptr;
    if (!look_up(theirs.send, is_scatter ? bytes * size_ : bytes, &send)) return false;
    views_[rank].send = send;
    if (!look_up(theirs.receive, is_gather ? bytes * size_ : bytes, &views_[rank].receive)) {
      return false;
    }
  }
  return true;
}

bool Collective::is_every_send_shared() const {
  return std::all_of(views_.begin(), views_.end(), [](const View& v) { return v.send != nullptr; });
}

bool Collective::is_every_receive_shared() const {
  return std::all_of(views_.begin(), views_.end(),
                     [](const View& v) { return v.receive != nullptr; });
}

Caching Collective::caching_of_message() const {
  const uint64_t ranks = operation_.kind == Kind::kAllGather ? size_ : 1;
  return operation_.count * each_ * ranks >= kBypassBytes ? Caching::kBypass : Caching::kKeep;
}

// See Note [Staging past the caches].
Caching Collective::caching_of_stage(uint64_t bytes) const {
  return bytes >= kBypassStageBytes ? Caching::kBypass : Caching::kKeep;
}

// Chunk `index` of `elements` elements of the operation's count.
Collective::Range Collective::chunk(uint64_t index, uint64_t elements) const {
  const uint64_t begin = index * elements;
  return {begin, std::min(elements, operation_.count - begin)};
}

bool Collective::reduce_big(std::vector<const void*> sources, std::vector<Target> targets,
                            uint64_t count) {
  const uint64_t stride = kStrideBytes / each_;
  Reduction r{operation_.dtype,
              operation_.op,
              sources.data(),
              static_cast<uint32_t>(sources.size()),
              targets.data(),
              static_cast<uint32_t>(targets.size()),
              0};
  for (uint64_t begin = 0; begin < count; begin += stride) {
    if (has_failed()) return false;
    r.count = std::min(stride, count - begin);
    reduce(r);
    for (const void*& data : sources) data = static_cast<const char*>(data) + stride * each_;
    for (Target& target : targets) target.data = static_cast<char*>(target.data) + stride * each_;
  }
  return true;
}

bool Collective::copy_big(char* target, const char* source, uint64_t bytes) {
  const Caching how = caching_of_message();
  for (uint64_t begin = 0; begin < bytes; begin += kStrideBytes) {
    if (has_failed()) return false;
    copy(target + begin, source + begin, std::min(kStrideBytes, bytes - begin), how);
  }
  return true;
}

// ---- all_reduce: each rank reduces its share and gives the result to everybody ------------------

// Shares of long chunks begin at cache lines, so that two ranks never write one line.
Collective::Range Collective::share_of(uint32_t rank, Range chunk) const {
  const uint64_t line = chunk.count * each_ >= 4096 * uint64_t{size_} ? 64 / each_ : 1;
  const uint64_t lines = divide_up(chunk.count, line);
  const uint64_t begin = std::min(lines * rank / size_ * line, chunk.count);
  const uint64_t end = std::min(lines * (rank + 1) / size_ * line, chunk.count);
  return {chunk.begin + begin, end - begin};
}

bool Collective::all_reduce() {
  const uint64_t staged_elements = kStageBytes / each_;
  const bool is_mine_shared = operation_.send.region != 0;
  if (!is_mine_shared) stage_for_all_reduce(0);
  if (!agree()) return false;
  const bool is_staged = !is_every_send_shared() || !is_every_receive_shared();
  const uint64_t elements = is_staged ? staged_elements : std::max<uint64_t>(operation_.count, 1);
  const uint64_t chunks = std::max<uint64_t>(divide_up(operation_.count, elements), 1);
  for (uint64_t i = 0; i < chunks; ++i) {
    if (!reduce_share(chunk(i, elements), i % 2)) return false;
    if (!is_mine_shared && i + 1 < chunks) stage_for_all_reduce(i + 1);
    if (!meet(RankLink::Haste::kBusy)) return false;
    take_results(chunk(i, elements), i % 2);
  }
  return true;
}

void Collective::stage_for_all_reduce(uint64_t index) {
  const Range all = chunk(index, kStageBytes / each_);
  char* const stage = link_.stage(rank_, index % 2);
  for (uint32_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Range share = share_of(rank, all);
    copy(stage + (share.begin - all.begin) * each_, send_ + share.begin * each_,
         share.count * each_, caching_of_stage(share.count * each_));
  }
}

bool Collective::reduce_share(Range all, uint32_t parity) {
  const Range share = share_of(rank_, all);
  const uint64_t in_stage = (share.begin - all.begin) * each_;
  std::vector<const void*> sources(size_);
  std::vector<Target> targets = {{receive_ + share.begin * each_, caching_of_message()}};
  bool is_result_staged = false;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    sources[rank] = rank == rank_           ? send_ + share.begin * each_
                    : is_sharing_send(rank) ? views_[rank].send + share.begin * each_
                                            : link_.stage(rank, parity) + in_stage;
    if (rank == rank_) continue;
    if (is_sharing_receive(rank)) {
      targets.push_back({views_[rank].receive + share.begin * each_, caching_of_message()});
    } else {
      is_result_staged = true;
    }
  }
  if (is_result_staged) {
    targets.push_back(
        {link_.stage(rank_, 2 + parity) + in_stage, caching_of_stage(share.count * each_)});
  }
  sent_bytes_ += (all.count - share.count + share.count * (size_ - 1)) * each_;
  return reduce_big(std::move(sources), std::move(targets), share.count);
}

void Collective::take_results(Range all, uint32_t parity) {
  if (is_sharing_receive(rank_)) return;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Range share = share_of(rank, all);
    copy(receive_ + share.begin * each_,
         link_.stage(rank, 2 + parity) + (share.begin - all.begin) * each_, share.count * each_,
         Caching::kKeep);
  }
}

// ---- reduce_scatter: each rank reduces its part -------------------------------------------------

// Elements of every part in one staging buffer.
uint64_t Collective::scatter_chunk() const { return kStageBytes / each_ / size_; }

bool Collective::reduce_scatter() {
  const bool is_mine_shared = operation_.send.region != 0;
  if (!is_mine_shared) stage_for_reduce_scatter(0);
  if (!agree()) return false;
  const uint64_t elements =
      is_every_send_shared() ? std::max<uint64_t>(operation_.count, 1) : scatter_chunk();
  const uint64_t chunks = std::max<uint64_t>(divide_up(operation_.count, elements), 1);
  for (uint64_t i = 0; i < chunks; ++i) {
    if (!reduce_part(chunk(i, elements), i % 2)) return false;
    if (!is_mine_shared && i + 1 < chunks) stage_for_reduce_scatter(i + 1);
    if (!meet(RankLink::Haste::kBusy)) return false;
  }
  return true;
}

void Collective::stage_for_reduce_scatter(uint64_t index) {
  const Range part = chunk(index, scatter_chunk());
  char* const stage = link_.stage(rank_, index % 2);
  for (uint32_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    copy(stage + rank * scatter_chunk() * each_,
         send_ + (rank * operation_.count + part.begin) * each_, part.count * each_,
         caching_of_stage(part.count * each_));
  }
}

bool Collective::reduce_part(Range part, uint32_t parity) {
  const uint64_t in_send = (rank_ * operation_.count + part.begin) * each_;
  std::vector<const void*> sources(size_);
  for (uint32_t rank = 0; rank < size_; ++rank) {
    sources[rank] = rank == rank_ ? send_ + in_send
                    : is_sharing_send(rank)
                        ? views_[rank].send + in_send
                        : link_.stage(rank, parity) + rank_ * scatter_chunk() * each_;
  }
  sent_bytes_ += part.count * (size_ - 1) * each_;
  return reduce_big(std::move(sources), {{receive_ + part.begin * each_, caching_of_message()}},
                    part.count);
}

// ---- all_gather and broadcast: senders' bytes go to everybody -----------------------------------

bool Collective::is_sender(uint32_t rank) const {
  return operation_.kind == Kind::kAllGather || rank == operation_.root;
}

// Where a sender's bytes begin in everybody's receive buffer.
uint64_t Collective::place_of(uint32_t sender) const {
  return operation_.kind == Kind::kAllGather ? sender * operation_.count * each_ : 0;
}

// Whether some bytes of this sender can neither be read nor be written in place.
bool Collective::must_stage(uint32_t sender) const {
  if (!is_sender(sender) || is_sharing_send(sender)) return false;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    if (rank != sender && !is_sharing_receive(rank)) return true;
  }
  return false;
}

bool Collective::spread() {
  const uint64_t elements = kStageBytes / each_;
  // Before the ranks have met, nobody knows whether the first chunk will be needed.
  if (is_sender(rank_) && operation_.send.region == 0) stage_for_spread(0);
  if (!agree()) return false;
  if (is_sender(rank_)) sent_bytes_ += operation_.count * each_ * (size_ - 1);
  if (operation_.count == 0) return meet(RankLink::Haste::kBusy);
  bool is_staged = false;
  for (uint32_t rank = 0; rank < size_; ++rank) is_staged = is_staged || must_stage(rank);
  if (!spread_in_place()) return false;
  const uint64_t chunks = is_staged ? divide_up(operation_.count, elements) : 0;
  for (uint64_t i = 0; i < chunks; ++i) {
    const Range part = chunk(i, elements);
    for (uint32_t sender = 0; sender < size_; ++sender) {
      if (sender == rank_ || !must_stage(sender) || is_sharing_receive(rank_)) continue;
      copy(receive_ + place_of(sender) + part.begin * each_, link_.stage(sender, i % 2),
           part.count * each_, caching_of_message());
    }
    if (i + 1 == chunks) break;
    if (must_stage(rank_)) stage_for_spread(i + 1);
    if (!meet(RankLink::Haste::kBusy)) return false;
  }
  return meet(RankLink::Haste::kBusy);
}

void Collective::stage_for_spread(uint64_t index) {
  const Range part = chunk(index, kStageBytes / each_);
  copy(link_.stage(rank_, index % 2), send_ + part.begin * each_, part.count * each_,
       caching_of_stage(part.count * each_));
}

// This rank's own bytes, what it can read from peers, and what it can write into peers.
bool Collective::spread_in_place() {
  const uint64_t bytes = operation_.count * each_;
  if (is_sender(rank_)) {
    char* const own = receive_ + place_of(rank_);
    if (own != send_ && !copy_big(own, send_, bytes)) return false;
  }
  // Each rank begins with its neighbour, so that not all read the same memory.
  for (uint32_t i = 1; i < size_; ++i) {
    const uint32_t peer = (rank_ + i) % size_;
    if (is_sender(peer) && is_sharing_send(peer)) {
      if (!copy_big(receive_ + place_of(peer), views_[peer].send, bytes)) return false;
    }
    if (is_sender(rank_) && !is_sharing_send(rank_) && is_sharing_receive(peer)) {
      if (!copy_big(views_[peer].receive + place_of(rank_), send_, bytes)) return false;
    }
  }
  return true;
}

}  // namespace strata::ccl
