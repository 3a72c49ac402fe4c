#include "strata/ccl_cpu/communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <tuple>

#include "strata/abi/strategy.h"

namespace strata::ccl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery(50);

std::atomic<uint64_t> link_bytes_per_second{0};

}  // namespace

void set_link(uint64_t bytes_per_second) { link_bytes_per_second.store(bytes_per_second); }

struct Communicator::Job {
  std::shared_ptr<Communicator> communicator;
  Operation operation;
  const void* send;
  void* receive;
  SharedRange shared_send;
  SharedRange shared_receive;
};

Failure Communicator::join(const JoinRequest& request, std::shared_ptr<Communicator>* out) {
  std::unique_ptr<RankLink> link;
  Failure failure = RankLink::join(request, &link);
  if (!failure.happened()) out->reset(new Communicator(std::move(link)));
  return failure;
}

Failure Communicator::check(const Call& call) {
  const Operation& o = call.operation;
  const auto invalid = [&](const std::string& why) {
    return Failure{STRATA_E_INVALID_ARGUMENT, "communicator '" + link_->name() + "': " + why};
  };
  const size_t each = element_size(o.dtype);
  if (each == 0)
    return {STRATA_E_UNSUPPORTED, "communicator '" + link_->name() +
                                      "': data type not among u8, i32, i64, f16, "
                                      "bf16, f32, f64"};
  if (o.op < 0 || o.op > STRATA_REDUCE_MAX) {
    return {STRATA_E_UNSUPPORTED,
            "communicator '" + link_->name() + "': reduction not among sum, min, max"};
  }
  if (o.root >= size()) {
    return invalid("root " + std::to_string(o.root) + " of " + std::to_string(size()) + " ranks");
  }
  if (o.count > SIZE_MAX / 2 / each / size()) {
    return invalid("count " + std::to_string(o.count) + " is out of range");
  }
  const bool needs_send = o.kind != Kind::kBroadcast || o.root == rank();
  if (o.count != 0 && (call.receive == nullptr || (needs_send && call.send == nullptr))) {
    return invalid("NULL buffer for " + std::to_string(o.count) + " elements");
  }
  return failure();
}

void Communicator::issue(const Call& call) {
  auto job = std::make_unique<Job>();
  job->communicator = shared_from_this();
  job->operation = call.operation;
  job->send = call.send;
  job->receive = call.receive;
  const Operation& o = call.operation;
  const size_t bytes = o.count * element_size(o.dtype);
  SharedMemory& memory = SharedMemory::of_this_process();
  if (o.kind != Kind::kBroadcast || o.root == rank()) {
    const size_t sent = o.kind == Kind::kReduceScatter ? bytes * size() : bytes;
    job->shared_send = memory.find(call.send, sent);
  }
  const size_t received = o.kind == Kind::kAllGather ? bytes * size() : bytes;
  job->shared_receive = memory.find(call.receive, received);
  job->operation.send = job->shared_send.address;
  job->operation.receive = job->shared_receive.address;
  job->operation.sequence = issued_.fetch_add(1) + 1;
  if (call.queue == nullptr) {
    run_job(job.release());
    return;
  }
  Job* const handed_over = job.release();
  const strata_status_t status = call.queue->enqueue(call.queue, run_job, handed_over);
  if (status == STRATA_OK) return;
  job.reset(handed_over);
  link_->fail({STRATA_E_STATE, "the stream of " + describe(job->operation) + " of communicator '" +
                                   link_->name() + "' is shutting down"});
}

void Communicator::run_job(void* argument) {
  const std::unique_ptr<Job> job(static_cast<Job*>(argument));
  Communicator& communicator = *job->communicator;
  try {
    communicator.run(*job);
  } catch (const std::exception& e) {
    communicator.link_->fail({STRATA_E_INTERNAL, describe(job->operation) + " threw: " + e.what()});
  }
}

void Communicator::run(Job& job) {
  if (!wait_for_turn(job.operation)) return;
  Collective collective(*link_, job.operation, job.send, job.receive);
  if (collective.run()) {
    sent_bytes_.fetch_add(collective.sent_bytes(), std::memory_order_relaxed);
    hold_for_link(collective);
  }
  end_turn();
}

// Collectives of one communicator may be queued in several streams.
bool Communicator::wait_for_turn(const Operation& operation) {
  const Clock::time_point deadline = Clock::now() + link_->timeout();
  std::unique_lock lock(turn_mutex_);
  while (turn_ != operation.sequence) {
    if (link_->has_failed()) return false;
    if (Clock::now() >= deadline) {
      const std::string before = std::to_string(turn_);
      lock.unlock();
      link_->fail({STRATA_E_TIMEOUT, "rank " + std::to_string(rank()) + " waited for collective #" +
                                         before + " of communicator '" + link_->name() +
                                         "' before " + describe(operation) +
                                         ". HINT: does its stream run?"});
      return false;
    }
    turn_changed_.wait_for(lock, kLookEvery);
  }
  return true;
}

void Communicator::end_turn() {
  {
    std::lock_guard lock(turn_mutex_);
    ++turn_;
  }
  turn_changed_.notify_all();
}

void Communicator::hold_for_link(const Collective& collective) {
  const uint64_t speed = link_bytes_per_second.load(std::memory_order_relaxed);
  if (speed == 0) return;
  const auto needed = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
      static_cast<double>(collective.sent_bytes()) / static_cast<double>(speed)));
  std::unique_lock lock(turn_mutex_);
  while (!link_->has_failed()) {
    const auto left = collective.begin() + needed - Clock::now();
    if (left <= Clock::duration::zero()) return;
    turn_changed_.wait_for(lock, std::min<Clock::duration>(left, kLookEvery));
  }
}

Failure Communicator::split(int color, int key, const char* name,
                            std::shared_ptr<Communicator>* out) {
  out->reset();
  if (color < 0 && color != sdk::nccl::kSplitNoColor) {
    return {STRATA_E_INVALID_ARGUMENT, "color " + std::to_string(color) + " of a split of '" +
                                           link_->name() + "' is negative"};
  }
  std::lock_guard lock(split_mutex_);
  if (Failure failed = failure(); failed.happened()) return failed;
  link_->mine().split_color = color;
  link_->mine().split_key = key;
  if (!link_->meet(kControl, RankLink::Haste::kPatient, {"a split", nullptr})) return failure();

  // (key, rank) of the ranks with this rank's color, in their new order.
  std::vector<std::pair<int, uint32_t>> group;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const Slot& slot = link_->slot(rank);
    if (slot.split_color == color) group.emplace_back(slot.split_key, rank);
  }
  std::sort(group.begin(), group.end());
  const uint32_t leader = group.front().second;
  Failure made;
  if (color >= 0 && leader == rank()) {
    made = make_unique_id(&link_->mine().split_id);
    link_->mine().split_failed = made.happened() ? 1 : 0;
  }
  if (!link_->meet(kControl, RankLink::Haste::kPatient, {"a split", nullptr})) return failure();
  if (color < 0 || made.happened()) return made;
  if (link_->slot(leader).split_failed != 0) {
    return {STRATA_E_OUT_OF_MEMORY, "rank " + std::to_string(leader) + " of communicator '" +
                                        link_->name() + "' could not make shared memory"};
  }
  const auto place = std::find(group.begin(), group.end(), std::pair(key, rank()));
  JoinRequest request{link_->slot(leader).split_id, static_cast<uint32_t>(place - group.begin()),
                      static_cast<uint32_t>(group.size()),
                      name != nullptr ? name : link_->name() + "/" + std::to_string(color),
                      link_->timeout()};
  return join(request, out);
}

void Communicator::abort() {
  link_->fail({STRATA_E_ABORTED,
               "rank " + std::to_string(rank()) + " aborted communicator '" + link_->name() + "'"});
  turn_changed_.notify_all();
}

}  // namespace strata::ccl
