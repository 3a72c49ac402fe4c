#include "strata/sdk/rank_group.h"

#include <cstring>
#include <sstream>

namespace strata::sdk {
namespace {

constexpr uint32_t kMostSmallValues = 4096;

// For "they differ: ...".
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
    if (a != b || (!has_a && !has_b)) return "here '" + a + "', on rank 0 '" + b + "'";
  }
}

}  // namespace

RankGroup::RankGroup(strata_host_t* host, const std::string& name, uint32_t rank, uint32_t size,
                     bool overlap)
    : host_(host), name_(name), rank_(rank), size_(size) {
  stream_ = services().streams->compute(host);
  if (is_alone()) return;
  if (overlap) {
    side_stream_ = Stream(host, (name + " comm").c_str());
    stream_ = side_stream_.get();
  }
  // Every attach meets under a name of its own: ranks attach equally often.
  int64_t attached = 0;
  const std::string counter = name + "/attached/" + std::to_string(rank);
  sdk::check(services().store->add(host, counter.c_str(), 1, &attached), "counting attaches");
  name_ = name + "/" + std::to_string(attached);
  communicator_ = Communicator::create(host, name_, rank, size);
  small_ = Buffer(host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, kMostSmallValues * sizeof(double),
                  STRATA_MEMORY_COLLECTIVE, "small reductions");
  small_done_ = Event(host);
  drained_ = Event(host);
}

void RankGroup::agree(const std::string& text) {
  if (is_alone()) return;
  const std::string key = name_ + "/model";
  Error difference(STRATA_OK, "");
  int64_t differs = 0;
  if (rank_ == 0) {
    sdk::check(services().store->set(host_, key.c_str(), text.data(), text.size()),
               "telling the model");
  } else {
    uint64_t bytes = 0;
    sdk::check(services().store->get(host_, key.c_str(), nullptr, &bytes, 0),
               "asking for the model");
    std::string theirs(bytes, '\0');
    sdk::check(services().store->get(host_, key.c_str(), theirs.data(), &bytes, 0),
               "asking for the model");
    if (theirs != text) {
      differs = 1;
      difference = Error(STRATA_E_INVALID_ARGUMENT,
                         "rank " + std::to_string(rank_) +
                             " was given another model: " + first_difference(text, theirs) +
                             ". HINT: start all ranks with the same arguments");
    }
  }
  // Every rank learns whether any differs, so that all end and none waits.
  int64_t differing = differs;
  strata_small_reduction_t sum{};
  sum.struct_size = sizeof(sum);
  sum.dtype = STRATA_DTYPE_I64;
  sum.op = STRATA_REDUCE_SUM;
  sum.count = 1;
  sum.values = &differing;
  all_reduce_small(sum);
  if (differs != 0) throw difference;
  if (differing != 0) {
    throw Error(STRATA_E_INVALID_ARGUMENT, std::to_string(differing) +
                                               " other ranks were given another model. HINT: "
                                               "start all ranks with the same arguments");
  }
}

void RankGroup::all_reduce_small(const strata_small_reduction_t& reduction) {
  if (is_alone() || reduction.count == 0) return;
  if (reduction.count > kMostSmallValues ||
      (reduction.dtype != STRATA_DTYPE_F64 && reduction.dtype != STRATA_DTYPE_I64)) {
    throw Error(STRATA_E_INVALID_ARGUMENT,
                "all_reduce_small takes at most 4096 values of F64 or I64, got " +
                    std::to_string(reduction.count) + " of dtype " +
                    std::to_string(reduction.dtype));
  }
  const size_t bytes = reduction.count * sizeof(double);
  std::memcpy(small_.data(), reduction.values, bytes);
  communicator_->all_reduce(small_.data(), small_.data(), reduction.count, reduction.dtype,
                            reduction.op, stream_);
  small_done_.record(stream_);
  small_done_.synchronize("a small reduction");
  check();
  std::memcpy(reduction.values, small_.data(), bytes);
}

void RankGroup::check() {
  if (communicator_ != nullptr) communicator_->check_async_error();
}

void RankGroup::synchronize(const char* what) {
  if (is_alone()) return;
  drained_.record(stream_);
  drained_.synchronize(what);
  check();
}

void RankGroup::abort() noexcept {
  if (communicator_ != nullptr) communicator_->abort();
}

}  // namespace strata::sdk
