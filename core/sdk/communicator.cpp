#include "strata/sdk/communicator.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "strata/sdk/nccl_api.h"

namespace strata::sdk {
namespace {

using nccl::Result;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

uint64_t element_size(nccl::DataType type) {
  switch (type) {
    case nccl::DataType::kUint8: return 1;
    case nccl::DataType::kFloat16:
    case nccl::DataType::kBfloat16: return 2;
    case nccl::DataType::kInt32:
    case nccl::DataType::kFloat32: return 4;
    case nccl::DataType::kInt64:
    case nccl::DataType::kFloat64: return 8;
  }
  return 0;
}

int32_t code_of(Result result) {
  switch (result) {
    case Result::kInvalidArgument: return STRATA_E_INVALID_ARGUMENT;
    case Result::kInvalidUsage: return STRATA_E_STATE;
    case Result::kSystemError: return STRATA_E_IO;
    case Result::kRemoteError: return STRATA_E_PEER_LOST;
    default: return STRATA_E_INTERNAL;
  }
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const nccl::Api& api, strata_host_t* host, std::string name, uint32_t rank,
                   uint32_t size)
      : api_(api),
        host_(host),
        name_(std::move(name)),
        rank_(rank),
        size_(size),
        timeout_(services().communication->timeout_ms(host)),
        is_strata_library_(api.strata_ccl_error != nullptr) {}

  // NCCL's destroy waits for the other ranks of the node, its abort for nobody. Strata's destroy
  // waits for nobody either, and lets queued collectives end.
  ~NcclCommunicator() override {
    if (comm_ == nullptr || was_aborted_) return;
    is_strata_library_ ? api_.comm_destroy(comm_) : api_.comm_abort(comm_);
  }

  void join(const nccl::UniqueId& id);
  std::unique_ptr<Communicator> split(int color, int key) override;

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  void all_gather(const void* send, void* receive, uint64_t count, int32_t dtype,
                  strata_stream_t stream) override;
  void reduce_scatter(const void* send, void* receive, uint64_t count, int32_t dtype,
                      strata_stream_t stream) override;
  void all_reduce(const void* send, void* receive, uint64_t count, int32_t dtype, int32_t op,
                  strata_stream_t stream) override;
  void broadcast(const void* send, void* receive, uint64_t count, int32_t dtype, uint32_t root,
                 strata_stream_t stream) override;
  void group_start() override;
  void group_end() override;
  void check_async_error() override;
  void abort() noexcept override;
  uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }

 private:
  // NCCL's calls must not run beside its abort. Strata's may, and on a stream without a thread
  // they last as long as the collective does.
  std::unique_lock<std::mutex> exclude_abort() {
    return is_strata_library_ ? std::unique_lock<std::mutex>() : std::unique_lock(mutex_);
  }
  nccl::Config config() const;
  void prepare();
  void check(Result result, const char* doing) { check(result, doing, comm_); }
  void check(Result result, const char* doing, nccl::Comm comm);
  [[noreturn]] void raise(Result result, const char* doing);
  [[noreturn]] void raise_aborted();
  std::optional<Error> asynchronous_error();
  void count_sent(uint64_t bytes);

  const nccl::Api& api_;
  strata_host_t* const host_;
  const std::string name_;
  const uint32_t rank_;
  const uint32_t size_;
  const milliseconds timeout_;
  const bool is_strata_library_;
  nccl::Comm comm_ = nullptr;
  std::mutex mutex_;
  std::atomic<bool> was_aborted_{false};
  std::mutex cause_mutex_;
  std::optional<Error> cause_;  // what had gone wrong before the abort
  std::atomic<uint64_t> sent_bytes_{0};
};

nccl::Config NcclCommunicator::config() const {
  nccl::Config config;
  config.blocking = 0;
  config.comm_name = name_.c_str();
  return config;
}

// Before a call that makes a communicator.
void NcclCommunicator::prepare() {
  if (api_.strata_ccl_set_timeout != nullptr && timeout_.count() > 0) {
    api_.strata_ccl_set_timeout(static_cast<uint64_t>(timeout_.count()));
  }
}

void NcclCommunicator::join(const nccl::UniqueId& id) {
  prepare();
  nccl::Config wanted = config();
  check(api_.comm_init_rank_config(&comm_, static_cast<int>(size_), id, static_cast<int>(rank_),
                                   &wanted),
        "joining");
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  if (was_aborted_) raise_aborted();
  const auto lock = exclude_abort();
  prepare();
  nccl::Config wanted = config();
  const std::string part_name = name_ + "/" + std::to_string(color);
  wanted.comm_name = part_name.c_str();
  nccl::Comm made = nullptr;
  check(api_.comm_split(comm_, color, key, &made, &wanted), "a split");
  if (made == nullptr) return nullptr;
  Result state = Result::kSuccess;
  check(api_.comm_get_async_error(made, &state), "a split");
  check(state, "a split", made);
  int rank = 0;
  int size = 0;
  check(api_.comm_user_rank(made, &rank), "asking for the rank");
  check(api_.comm_count(made, &size), "asking for the size");
  auto part = std::make_unique<NcclCommunicator>(
      api_, host_, part_name, static_cast<uint32_t>(rank), static_cast<uint32_t>(size));
  part->comm_ = made;
  return part;
}

// A non-blocking call that is under way is waited for, up to the deadline.
void NcclCommunicator::check(Result result, const char* doing, nccl::Comm comm) {
  const Clock::time_point start = Clock::now();
  while (result == Result::kInProgress) {
    if (timeout_.count() > 0 && Clock::now() - start > timeout_) {
      throw Error(STRATA_E_TIMEOUT, "rank " + std::to_string(rank_) + " waited " +
                                        std::to_string(timeout_.count()) + " ms for " + doing +
                                        " of communicator '" + name_ + "' of " +
                                        std::to_string(size_) + " ranks");
    }
    std::this_thread::sleep_for(milliseconds(1));
    if (api_.comm_get_async_error(comm, &result) != Result::kSuccess) break;
  }
  if (result != Result::kSuccess) raise(result, doing);
}

void NcclCommunicator::raise(Result result, const char* doing) {
  if (was_aborted_) raise_aborted();
  if (is_strata_library_) {
    char text[1200];
    const int32_t code = api_.strata_ccl_error(nullptr, text, sizeof(text));
    throw Error(code == STRATA_OK ? code_of(result) : code, text);
  }
  const char* detail = api_.get_last_error(comm_);
  throw Error(code_of(result),
              std::string(doing) + " of communicator '" + name_ +
                  "' failed: " + api_.get_error_string(result) +
                  (detail != nullptr && detail[0] != '\0' ? std::string(" (") + detail + ")"
                                                          : std::string()));
}

void NcclCommunicator::raise_aborted() {
  std::lock_guard lock(cause_mutex_);
  if (cause_.has_value()) throw *cause_;
  throw Error(STRATA_E_ABORTED, "communicator '" + name_ + "' was aborted");
}

std::optional<Error> NcclCommunicator::asynchronous_error() {
  if (is_strata_library_) {
    char text[1200];
    const int32_t code = api_.strata_ccl_error(comm_, text, sizeof(text));
    if (code == STRATA_OK) return std::nullopt;
    return Error(code, text);
  }
  Result error = Result::kSuccess;
  const Result asked = api_.comm_get_async_error(comm_, &error);
  if (asked != Result::kSuccess) error = asked;
  if (error == Result::kSuccess || error == Result::kInProgress) return std::nullopt;
  try {
    raise(error, "a collective");
  } catch (const Error& e) {
    return e;
  }
}

void NcclCommunicator::check_async_error() {
  if (was_aborted_) raise_aborted();
  const auto lock = exclude_abort();
  const std::optional<Error> error = asynchronous_error();
  if (was_aborted_) raise_aborted();
  if (error.has_value()) throw *error;
}

void NcclCommunicator::abort() noexcept {
  try {
    const auto lock = exclude_abort();
    {
      std::lock_guard cause_lock(cause_mutex_);
      if (was_aborted_) return;
      cause_ = asynchronous_error();
      was_aborted_ = true;
    }
    api_.comm_abort(comm_);
  } catch (const std::exception&) {
    // Only memory can be missing here, for a text.
    if (!was_aborted_.exchange(true)) api_.comm_abort(comm_);
  }
}

void NcclCommunicator::count_sent(uint64_t bytes) {
  sent_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  services().communication->count_sent(host_, bytes);
}

void NcclCommunicator::all_gather(const void* send, void* receive, uint64_t count, int32_t dtype,
                                  strata_stream_t stream) {
  const nccl::DataType type = nccl::data_type_of(dtype);
  if (was_aborted_) raise_aborted();
  const auto lock = exclude_abort();
  count_sent((size_ - 1) * count * element_size(type));
  check(api_.all_gather(send, receive, count, type, comm_, stream), "all_gather");
}

void NcclCommunicator::reduce_scatter(const void* send, void* receive, uint64_t count,
                                      int32_t dtype, strata_stream_t stream) {
  const nccl::DataType type = nccl::data_type_of(dtype);
  if (was_aborted_) raise_aborted();
  const auto lock = exclude_abort();
  count_sent((size_ - 1) * count * element_size(type));
  check(api_.reduce_scatter(send, receive, count, type, nccl::Op::kSum, comm_, stream),
        "reduce_scatter");
}

void NcclCommunicator::all_reduce(const void* send, void* receive, uint64_t count, int32_t dtype,
                                  int32_t op, strata_stream_t stream) {
  const nccl::DataType type = nccl::data_type_of(dtype);
  const nccl::Op reduction = nccl::op_of(op);
  if (was_aborted_) raise_aborted();
  const auto lock = exclude_abort();
  count_sent(2 * (size_ - 1) * count * element_size(type) / size_);
  check(api_.all_reduce(send, receive, count, type, reduction, comm_, stream), "all_reduce");
}

void NcclCommunicator::broadcast(const void* send, void* receive, uint64_t count, int32_t dtype,
                                 uint32_t root, strata_stream_t stream) {
  const nccl::DataType type = nccl::data_type_of(dtype);
  if (was_aborted_) raise_aborted();
  const auto lock = exclude_abort();
  count_sent((size_ - 1) * count * element_size(type) / size_);
  check(api_.broadcast(send, receive, count, type, static_cast<int>(root), comm_, stream),
        "broadcast");
}

void NcclCommunicator::group_start() { check(api_.group_start(), "the start of a group"); }

void NcclCommunicator::group_end() {
  const auto lock = exclude_abort();
  check(api_.group_end(), "a group");
}

// The id of a new communicator, made by rank 0 and passed on through the host's store.
nccl::UniqueId meet_through_store(const nccl::Api& api, strata_host_t* host,
                                  const std::string& name, uint32_t rank) {
  const std::string key = "communicator/" + name;
  nccl::UniqueId id{};
  uint64_t bytes = sizeof(id);
  if (rank == 0) {
    const Result made = api.get_unique_id(&id);
    if (made != Result::kSuccess) bytes = 0;  // so that nobody waits for it
    check(services().store->set(host, key.c_str(), id.internal, bytes), "passing on an id");
    if (made != Result::kSuccess) {
      const char* detail = api.get_last_error(nullptr);
      throw Error(code_of(made), "making an id for communicator '" + name +
                                     "' failed: " + api.get_error_string(made) +
                                     (detail != nullptr ? std::string(" (") + detail + ")" : ""));
    }
    return id;
  }
  check(services().store->get(host, key.c_str(), id.internal, &bytes, 0),
        "waiting for rank 0's communicator id");
  if (bytes != sizeof(id)) {
    throw Error(STRATA_E_PEER_LOST, "rank 0 could not make an id for communicator '" + name + "'");
  }
  return id;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::create(strata_host_t* host, const std::string& name,
                                                   uint32_t rank, uint32_t size) {
  const char* library = services().communication->library(host);
  if (library == nullptr || library[0] == '\0') {
    throw Error(STRATA_E_UNSUPPORTED, "the host names no communication library, so communicator '" +
                                          name + "' of " + std::to_string(size) +
                                          " ranks cannot be made");
  }
  const nccl::Api& api = nccl::Api::open(library);
  const nccl::UniqueId id = meet_through_store(api, host, name, rank);
  auto communicator = std::make_unique<NcclCommunicator>(api, host, name, rank, size);
  communicator->join(id);
  return communicator;
}

}  // namespace strata::sdk
