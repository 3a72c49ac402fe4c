#include "strata/ccl_cpu/rank_link.h"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <thread>

namespace strata::ccl {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long to spin before sleeping. A wake-up costs some 50 microseconds; a core that spins may be
// the one that the peer needs.
constexpr microseconds kPatientSpin(20);
constexpr microseconds kBusySpin(100);
constexpr microseconds kCrowdedSpin(2);  // more ranks than cores
// How often a sleeper looks for dead peers.
constexpr milliseconds kSleepSlice(50);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, milliseconds limit) {
  const timespec time{limit.count() / 1000, limit.count() % 1000 * 1000000};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

// Control blocks made by this process whose ranks have not all joined yet, by nonce.
struct PendingIds {
  std::mutex mutex;
  std::map<uint64_t, FileDescriptor> files;
};
PendingIds& pending_ids() {
  static auto* ids = new PendingIds;  // outlives threads that are still running at exit
  return *ids;
}

std::string seconds_text(std::chrono::nanoseconds time) {
  const auto tenths = std::chrono::duration_cast<milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

const char* dtype_name(int32_t dtype) {
  static constexpr const char* kNames[] = {"?", "f32", "bf16", "f16", "f64", "i64", "i32", "u8"};
  return dtype >= STRATA_DTYPE_F32 && dtype <= STRATA_DTYPE_U8 ? kNames[dtype] : kNames[0];
}

std::string describe(const Operation& operation) {
  static constexpr const char* kKinds[] = {"?", "all_gather", "reduce_scatter", "all_reduce",
                                           "broadcast"};
  static constexpr const char* kOps[] = {"", ", sum", ", min", ", max"};
  std::string text = kKinds[std::min(static_cast<uint32_t>(operation.kind), 4u)];
  text += " #" + std::to_string(operation.sequence) + " (" + std::to_string(operation.count) + " " +
          dtype_name(operation.dtype) + kOps[operation.op & 3];
  if (operation.kind == Kind::kBroadcast) text += ", root " + std::to_string(operation.root);
  return text + ")";
}

Failure make_unique_id(sdk::nccl::UniqueId* id) {
  FileDescriptor file;
  if (Failure failure = make_shared_file("strata-communicator", control_bytes(0), &file);
      failure.happened()) {
    return failure;
  }
  Mapping mapping;
  if (Failure failure = Mapping::map(file, control_bytes(0), &mapping); failure.happened()) {
    return failure;
  }
  // The file is full of zero bytes, which is what every atomic of the block starts with.
  auto* block = reinterpret_cast<ControlBlock*>(mapping.data());
  IdContent content{kControlMagic, random_number(), ::getpid(), file.get()};
  block->nonce = content.nonce;
  block->magic = kControlMagic;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, &content, sizeof(content));
  PendingIds& pending = pending_ids();
  std::lock_guard lock(pending.mutex);
  pending.files[content.nonce] = std::move(file);
  return {};
}

Failure RankLink::join(const JoinRequest& request, std::unique_ptr<RankLink>* out) {
  if (request.size < 1 || request.size > kMostRanks || request.rank >= request.size) {
    return {STRATA_E_INVALID_ARGUMENT, "rank " + std::to_string(request.rank) + " of " +
                                           std::to_string(request.size) +
                                           " ranks: a communicator has 1 to " +
                                           std::to_string(kMostRanks) + " ranks, counted from 0"};
  }
  std::unique_ptr<RankLink> link(new RankLink);
  if (Failure failure = link->open(request); failure.happened()) return failure;
  const bool met = link->meet(kControl, Haste::kPatient, {"joining", nullptr});
  IdContent content;
  std::memcpy(&content, request.id.internal, sizeof(content));
  {
    PendingIds& pending = pending_ids();
    std::lock_guard lock(pending.mutex);
    pending.files.erase(content.nonce);
  }
  if (!met) return link->failure();
  *out = std::move(link);
  return {};
}

Failure RankLink::open(const JoinRequest& request) {
  rank_ = request.rank;
  size_ = request.size;
  name_ = request.name;
  timeout_ = request.timeout;
  has_spare_cores_ = size_ <= ::sysconf(_SC_NPROCESSORS_ONLN);
  watches_.resize(size_);

  IdContent content;
  std::memcpy(&content, request.id.internal, sizeof(content));
  if (content.magic != kControlMagic) {
    return {STRATA_E_INVALID_ARGUMENT,
            "the unique id of communicator '" + name_ +
                "' was not made by this library. HINT: all ranks must open the same library"};
  }
  FileDescriptor file;
  size_t bytes = 0;
  if (Failure failure = open_shared_file(content.pid, content.fd, &file, &bytes);
      failure.happened()) {
    return failure;
  }
  const std::string gone = "the unique id of communicator '" + name_ + "', made by process " +
                           std::to_string(content.pid) +
                           ", is used up or gone. HINT: make a new id for every communicator";
  if (bytes < control_bytes(0)) return {STRATA_E_INVALID_ARGUMENT, gone};
  // Growing a file to the size that it has is nothing, so every rank may.
  if (bytes < control_bytes(size_) &&
      ::ftruncate(file.get(), static_cast<off_t>(control_bytes(size_))) != 0) {
    return system_failure("sizing the control block of communicator '" + name_ + "'");
  }
  if (Failure failure = Mapping::map(file, control_bytes(size_), &mapping_); failure.happened()) {
    return failure;
  }
  block_ = reinterpret_cast<ControlBlock*>(mapping_.data());
  if (block_->magic != kControlMagic || block_->nonce != content.nonce) {
    block_ = nullptr;
    return {STRATA_E_INVALID_ARGUMENT, gone};
  }
  Failure failure = claim_slot();
  if (failure.happened()) block_ = nullptr;
  return failure;
}

Failure RankLink::claim_slot() {
  uint32_t size = 0;
  if (!block_->size.compare_exchange_strong(size, size_) && size != size_) {
    return {STRATA_E_INVALID_ARGUMENT, "rank " + std::to_string(rank_) + " joins communicator '" +
                                           name_ + "' as one of " + std::to_string(size_) +
                                           " ranks, others as one of " + std::to_string(size)};
  }
  int32_t pid = 0;
  if (!mine().pid.compare_exchange_strong(pid, ::getpid())) {
    return {STRATA_E_INVALID_ARGUMENT, "rank " + std::to_string(rank_) + " of communicator '" +
                                           name_ + "' has already joined, as process " +
                                           std::to_string(pid) +
                                           ". HINT: make a new id for every communicator"};
  }
  return {};
}

RankLink::~RankLink() {
  if (block_ == nullptr) return;
  mine().has_left.store(1, std::memory_order_release);
  wake_everybody();
}

bool RankLink::is_in_this_process(uint32_t rank) const {
  return block_->slots[rank].pid.load(std::memory_order_relaxed) == ::getpid();
}

bool RankLink::meet(Lane lane, Haste haste, const Occasion& occasion) {
  Phase& phase = mine().phases[lane];
  const uint32_t target = phase.reached.fetch_add(1) + 1;
  // Sleepers count themselves before they look at `reached`: one of the two sides sees the other.
  if (phase.sleepers.load() != 0) wake_all(phase.reached);
  const Clock::time_point start = Clock::now();
  for (uint32_t i = 1; i < size_; ++i) {
    if (!wait_for((rank_ + i) % size_, lane, target, haste, start, occasion)) return false;
  }
  if (!has_failed()) return true;
  keep(failure());
  return false;
}

bool RankLink::wait_for(uint32_t peer, Lane lane, uint32_t target, Haste haste,
                        Clock::time_point start, const Occasion& occasion) {
  if (has_reached(peer, lane, target)) return true;
  const microseconds limit = !has_spare_cores_          ? kCrowdedSpin
                             : haste == Haste::kPatient ? kPatientSpin
                                                        : kBusySpin;
  const Clock::time_point spin_end = Clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (has_reached(peer, lane, target)) return true;
    }
  } while (Clock::now() < spin_end && !has_failed());

  Phase& phase = slot(peer).phases[lane];
  phase.sleepers.fetch_add(1);
  const bool reached = sleep_until_reached(peer, lane, target, start, occasion);
  phase.sleepers.fetch_sub(1);
  return reached;
}

bool RankLink::sleep_until_reached(uint32_t peer, Lane lane, uint32_t target,
                                   Clock::time_point start, const Occasion& occasion) {
  std::atomic<uint32_t>& word = slot(peer).phases[lane].reached;
  while (true) {
    const uint32_t seen = word.load();
    if (static_cast<int32_t>(seen - target) >= 0) return true;
    if (has_failed()) {
      keep(failure());
      return false;
    }
    if (Failure lost = lost_peer(lane, target, occasion); lost.happened()) {
      fail(lost);
      return false;
    }
    const auto left = timeout_ - (Clock::now() - start);
    if (left <= milliseconds(0)) {
      fail(overdue(lane, target, start, occasion));
      return false;
    }
    sleep_on(
        word, seen,
        std::min(kSleepSlice, std::chrono::duration_cast<milliseconds>(left) + milliseconds(1)));
  }
}

Failure RankLink::lost_peer(Lane lane, uint32_t target, const Occasion& occasion) {
  for (uint32_t peer = 0; peer < size_; ++peer) {
    const bool left = slot(peer).has_left.load(std::memory_order_acquire) != 0;
    if (peer == rank_ || (!left && !is_dead(peer))) continue;
    // It may have done its part first.
    if (has_reached(peer, lane, target)) continue;
    const std::string what =
        occasion.operation != nullptr ? describe(*occasion.operation) : occasion.text;
    return {STRATA_E_PEER_LOST,
            name_of(peer) +
                (left ? " has destroyed its communicator while rank " : " died while rank ") +
                std::to_string(rank_) + " waited for it in " + what + " of communicator '" + name_ +
                "'"};
  }
  return {};
}

Failure RankLink::overdue(Lane lane, uint32_t target, Clock::time_point start,
                          const Occasion& occasion) {
  std::string missing;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || has_reached(peer, lane, target)) continue;
    missing += (missing.empty() ? "" : ", ") + name_of(peer);
  }
  const std::string what =
      occasion.operation != nullptr ? describe(*occasion.operation) : occasion.text;
  return {STRATA_E_TIMEOUT,
          "rank " + std::to_string(rank_) + " waited " + seconds_text(Clock::now() - start) +
              " for " + missing + " in " + what + " of communicator '" + name_ + "' of " +
              std::to_string(size_) +
              " ranks. HINT: look at what those ranks do, or raise the communication timeout"};
}

std::string RankLink::name_of(uint32_t peer) {
  const int32_t pid = slot(peer).pid.load(std::memory_order_relaxed);
  return "rank " + std::to_string(peer) +
         (pid == 0 ? " (not there yet)" : " (pid " + std::to_string(pid) + ")");
}

bool RankLink::is_dead(uint32_t peer) {
  const int32_t pid = slot(peer).pid.load(std::memory_order_acquire);
  if (pid == 0 || pid == ::getpid()) return false;
  std::lock_guard lock(watch_mutex_);
  FileDescriptor& watch = watches_[peer];
  if (!watch.is_open()) {
#if defined(SYS_pidfd_open)
    watch = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#endif
    // Without pidfds a zombie passes for a living process.
    if (!watch.is_open()) return ::kill(pid, 0) != 0 && errno == ESRCH;
  }
  pollfd ended{watch.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

Failure RankLink::failure() {
  std::lock_guard lock(failure_mutex_);
  if (failure_.happened()) return failure_;
  const SharedFailure& shared = block_->failure;
  if (shared.state.load(std::memory_order_acquire) == 0) return {};
  // Its writer needs a microsecond, or died in it.
  for (int i = 0; i < 100 && shared.state.load(std::memory_order_acquire) == 1; ++i) {
    std::this_thread::sleep_for(microseconds(10));
  }
  if (shared.state.load(std::memory_order_acquire) == 1) {
    return {STRATA_E_PEER_LOST, "another rank of communicator '" + name_ + "' failed"};
  }
  failure_.code = shared.code;
  failure_.text = std::string(shared.text, ::strnlen(shared.text, sizeof(shared.text)));
  if (shared.rank != rank_)
    failure_.text += " (reported by rank " + std::to_string(shared.rank) + ")";
  has_failed_.store(true);
  return failure_;
}

void RankLink::keep(const Failure& failure) {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.happened()) failure_ = failure;
  has_failed_.store(true);
}

void RankLink::fail(const Failure& failure) {
  keep(failure);
  SharedFailure& shared = block_->failure;
  uint32_t none = 0;
  if (shared.state.compare_exchange_strong(none, 1)) {
    shared.code = failure.code;
    shared.rank = rank_;
    const size_t bytes = std::min(failure.text.size(), sizeof(shared.text) - 1);
    std::memcpy(shared.text, failure.text.data(), bytes);
    shared.text[bytes] = '\0';
    shared.state.store(2, std::memory_order_release);
  }
  wake_everybody();
}

void RankLink::wake_everybody() {
  for (uint32_t rank = 0; rank < size_; ++rank) {
    for (Phase& phase : slot(rank).phases) {
      if (phase.sleepers.load() != 0) wake_all(phase.reached);
    }
  }
}

}  // namespace strata::ccl
