#include "strata/sdk/rank_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <sstream>

namespace strata::sdk {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kMostSmallValues = 4096;
// How often a rank that waits for others looks whether it was aborted.
constexpr milliseconds kMeetingSlice(200);

std::string first_difference(const std::string& mine, const std::string& theirs) {
  std::istringstream left(mine);
  std::istringstream right(theirs);
  std::string a;
  std::string b;
  while (true) {
    const bool has_a = static_cast<bool>(std::getline(left, a));
    const bool has_b = static_cast<bool>(std::getline(right, b));
    if (!has_a) a = "nothing more";
    if (!has_b) b = "nothing more";
    if (a != b || (!has_a && !has_b)) return "has '" + a + "', rank 0 has '" + b + "'";
  }
}

void store_set(strata_host_t* host, const std::string& key, const std::string& value) {
  check(services().store->set(host, key.c_str(), value.data(), value.size()), "telling the ranks");
}

// REQUIRES: the key was set.
std::string store_get(strata_host_t* host, const std::string& key) {
  uint64_t bytes = 0;
  check(services().store->get(host, key.c_str(), nullptr, &bytes, 0), "asking a rank");
  std::string value(bytes, '\0');
  check(services().store->get(host, key.c_str(), value.data(), &bytes, 0), "asking a rank");
  return value;
}

// What `body` threw, as it was and in words.
struct Thrown {
  std::exception_ptr exception;
  strata_status_t code = STRATA_E_INTERNAL;
  std::string text;
};

Thrown run(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {std::current_exception(), error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {std::current_exception(), STRATA_E_OUT_OF_MEMORY, "no memory for bookkeeping"};
  } catch (const std::exception& error) {
    return {std::current_exception(), STRATA_E_INTERNAL, error.what()};
  }
}

void check_reduction(const strata_small_reduction_t& reduction) {
  const bool is_known =
      (reduction.dtype == STRATA_DTYPE_F64 || reduction.dtype == STRATA_DTYPE_I64) &&
      reduction.op >= STRATA_REDUCE_SUM && reduction.op <= STRATA_REDUCE_MAX;
  if (is_known && reduction.count <= kMostSmallValues &&
      (reduction.count == 0 || reduction.values != nullptr)) {
    return;
  }
  throw Error(STRATA_E_INVALID_ARGUMENT,
              "all_reduce_small got " + std::to_string(reduction.count) + " values of dtype " +
                  std::to_string(reduction.dtype) + " with op " + std::to_string(reduction.op) +
                  (reduction.values == nullptr ? " at NULL" : "") +
                  ". HINT: at most 4096 of F64 or I64, with STRATA_REDUCE_*");
}

}  // namespace

// ---- abort ----

void AbortSwitch::trip(const char* reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (was_tripped_) return;
  was_tripped_ = true;
  try {
    reason_ = reason;
  } catch (const std::bad_alloc&) {
    reason_.clear();
  }
  for (Communicator* communicator : communicators_) communicator->abort();
}

void AbortSwitch::check() const {
  const std::lock_guard lock(mutex_);
  if (was_tripped_) throw Error(STRATA_E_ABORTED, "was aborted: " + reason_);
}

void AbortSwitch::add(Communicator* communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
  if (was_tripped_) communicator->abort();
}

void AbortSwitch::forget_communicators() noexcept {
  const std::lock_guard lock(mutex_);
  communicators_.clear();
}

// ---- meeting and leaving ----

RankGroup::RankGroup(const RankGroupConfig& config, AbortSwitch& abort)
    : config_(config), abort_(abort) {
  abort_.check();
  strata_host_t* const host = config_.host;
  stream_ = services().streams->compute(host);
  if (is_alone()) return;
  // Every attach meets under a name of its own: ranks attach equally often.
  int64_t attached = 0;
  const std::string counter = config_.name + "/attached/" + std::to_string(rank());
  sdk::check(services().store->add(host, counter.c_str(), 1, &attached), "counting attaches");
  name_ = config_.name + "/" + std::to_string(attached);
  small_ = Buffer(host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, kMostSmallValues * sizeof(double),
                  STRATA_MEMORY_COLLECTIVE, "small reductions");
  if (!config_.is_on_cpu) {
    pinned_ = Buffer(host, STRATA_PLACE_PINNED, STRATA_TAG_OTHER, small_.bytes(), 0,
                     "small reductions on their way");
  }
  small_done_ = Event(host);
  drained_ = Event(host);
  if (config_.overlaps_compute) {
    side_stream_ = Stream(host, (config_.name + " comm").c_str());
    stream_ = side_stream_.get();
  }
  await_all_ranks();
  communicator_ = Communicator::create(host, name_, rank(), size());
  abort_.add(communicator_.get());
}

Communicator& RankGroup::split(int color) {
  parts_.push_back(communicator_->split(color, static_cast<int>(rank())));
  abort_.add(parts_.back().get());
  return *parts_.back();
}

// Communicators are joined when everybody is there: this wait can be aborted, theirs cannot.
void RankGroup::await_all_ranks() {
  strata_host_t* const host = config_.host;
  store_set(host, name_ + "/here/" + std::to_string(rank()), "1");
  int64_t here = 0;
  const std::string counter = name_ + "/here";
  const std::string everybody = name_ + "/everybody";
  sdk::check(services().store->add(host, counter.c_str(), 1, &here), "counting ranks");
  if (here == size()) store_set(host, everybody, "1");
  const milliseconds patience(services().communication->timeout_ms(host));
  const Clock::time_point begin = Clock::now();
  while (true) {
    abort_.check();
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    if (waited >= patience) {
      throw Error(STRATA_E_TIMEOUT, "rank " + std::to_string(rank()) + " waited " +
                                        std::to_string(waited.count()) + " ms for " +
                                        missing_ranks() +
                                        " to attach. HINT: look at what those ranks do");
    }
    const milliseconds slice = std::min(kMeetingSlice, patience - waited);
    uint64_t bytes = 0;
    const strata_status_t status =
        services().store->get(host, everybody.c_str(), nullptr, &bytes,
                              static_cast<uint64_t>(std::max<int64_t>(slice.count(), 1)));
    if (status == STRATA_OK) return;
    if (status != STRATA_E_TIMEOUT) sdk::check(status, "waiting for the other ranks");
  }
}

std::string RankGroup::missing_ranks() {
  std::string missing;
  for (uint32_t other = 0; other < size(); ++other) {
    const std::string key = name_ + "/here/" + std::to_string(other);
    uint64_t bytes = 0;
    if (services().store->get(config_.host, key.c_str(), nullptr, &bytes, 1) == STRATA_OK) continue;
    missing += (missing.empty() ? "rank " : ", ") + std::to_string(other);
  }
  return missing;
}

RankGroup::~RankGroup() { end(); }

void RankGroup::end() noexcept {
  if (communicator_ == nullptr) return;
  try {
    drained_.record(stream_);
    if (!drained_.has_passed()) abort_all();
    drained_.synchronize("the end of collectives");
  } catch (const Error&) {
    abort_all();  // the host's streams were aborted: theirs is not to be waited for
  }
  abort_.forget_communicators();
  side_stream_ = Stream();  // waits for its work
}

void RankGroup::abort_all() noexcept {
  communicator_->abort();
  for (const auto& part : parts_) part->abort();
}

// ---- agreement ----

void RankGroup::together(const std::function<void()>& body) {
  if (is_alone()) return body();
  const Thrown thrown = run(body);
  const std::string key = name_ + "/failed/" + std::to_string(++rounds_) + "/";
  int64_t failed_rank = size();
  if (thrown.exception != nullptr) {
    failed_rank = rank();
    store_set(config_.host, key + std::to_string(rank()),
              std::to_string(thrown.code) + " " + thrown.text);
  }
  strata_small_reduction_t lowest{};
  lowest.struct_size = sizeof(lowest);
  lowest.dtype = STRATA_DTYPE_I64;
  lowest.op = STRATA_REDUCE_MIN;
  lowest.count = 1;
  lowest.values = &failed_rank;
  all_reduce_small(lowest);
  if (thrown.exception != nullptr) std::rethrow_exception(thrown.exception);
  if (failed_rank == size()) return;
  const std::string told = store_get(config_.host, key + std::to_string(failed_rank));
  throw Error(std::stoi(told), "rank " + std::to_string(failed_rank) +
                                   " failed: " + told.substr(told.find(' ') + 1));
}

void RankGroup::agree(const std::string& text) {
  if (is_alone()) return;
  const std::string key = name_ + "/model";
  if (rank() == 0) store_set(config_.host, key, text);
  together([&] {
    if (rank() == 0) return;
    const std::string theirs = store_get(config_.host, key);
    if (theirs == text) return;
    throw Error(STRATA_E_INVALID_ARGUMENT,
                "the ranks were given different models or options: rank " + std::to_string(rank()) +
                    " " + first_difference(text, theirs) +
                    ". HINT: start all ranks with the same arguments");
  });
}

void RankGroup::all_reduce_small(const strata_small_reduction_t& reduction) {
  check_reduction(reduction);
  check();
  if (is_alone() || reduction.count == 0) return;
  const size_t bytes = reduction.count * sizeof(double);
  void* const mine = config_.is_on_cpu ? small_.data() : pinned_.data();
  const auto copy = [&](void* to, const void* from) {
    if (config_.is_on_cpu) return;
    sdk::check(services().kernels->copy(config_.host, stream_, to, from, bytes),
               "copying a small reduction");
  };
  std::memcpy(mine, reduction.values, bytes);
  copy(small_.data(), mine);
  communicator_->all_reduce(small_.data(), small_.data(), reduction.count, reduction.dtype,
                            reduction.op, stream_);
  copy(mine, small_.data());
  small_done_.record(stream_);
  small_done_.synchronize("a small reduction");
  check();
  std::memcpy(reduction.values, mine, bytes);
}

// ---- waiting ----

void RankGroup::check() {
  if (communicator_ != nullptr) communicator_->check_async_error();
  for (const auto& part : parts_) part->check_async_error();
  abort_.check();
}

void RankGroup::hold_compute() {
  if (is_alone()) return;
  drained_.record(stream_);
  drained_.hold(services().streams->compute(config_.host));
}

void RankGroup::synchronize(const char* what) {
  if (!is_alone()) {
    drained_.record(stream_);
    drained_.synchronize(what);
  }
  check();
}

}  // namespace strata::sdk
