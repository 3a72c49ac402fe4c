#include "strata/rendezvous/tcp_store.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "strata/base/text.h"
#include "strata/rendezvous/listener_probe.h"

namespace strata::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// LibTorch's own wait holds the client's lock and warns on stderr when its time is over; so a
// reader looks again and again, more and more rarely.
constexpr milliseconds kShortestPause{1};
constexpr milliseconds kLongestPause{50};
constexpr milliseconds kEndTime{2000};

milliseconds left_until(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

std::string seconds(milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

// LibTorch writes each exception of its store to stderr, with a stack, before it throws. While one
// of these lives, it does not.
class QuietLibTorch {
 public:
  QuietLibTorch() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) old_level_ = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_FATAL);
  }
  ~QuietLibTorch() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) FLAGS_caffe2_log_level = old_level_;
  }
  QuietLibTorch(const QuietLibTorch&) = delete;
  QuietLibTorch& operator=(const QuietLibTorch&) = delete;

 private:
  static inline std::mutex mutex_;
  static inline int users_ = 0;
  static inline int old_level_ = 0;
};

// The first line, without LibTorch's stack.
std::string first_line(const std::exception& error) {
  const auto* known = dynamic_cast<const c10::Error*>(&error);
  const std::string text = known != nullptr ? known->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct TcpStore::Client {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

TcpStore::TcpStore(RankPlace place, milliseconds answer_time)
    : place_(std::move(place)),
      prefix_("strata/" + place_.run_id + "/"),
      answer_time_(answer_time),
      client_(std::make_shared<Client>()) {}

// The store ends on the thread that has used it; a server is gone when this returns.
TcpStore::~TcpStore() {
  if (thread_.is_stuck()) return;
  thread_.run([client = std::move(client_)] { return client->store.reset(), true; }, kEndTime);
}

Status TcpStore::failed(const std::string& what, const std::string& why) const {
  return peer_lost(fmt::format("store: {}: the store of rank 0 at {}:{} does not answer: {}", what,
                               place_.store_host, place_.store_port, why));
}

template <typename Call>
auto TcpStore::ask(const std::string& what, milliseconds limit, Call call)
    -> Result<decltype(call(std::declval<c10d::TCPStore&>()))> {
  using Value = decltype(call(std::declval<c10d::TCPStore&>()));
  // Owns all it uses, since it may go on after its time.
  auto guarded = [client = client_, call = std::move(call)]() -> std::variant<Value, std::string> {
    const QuietLibTorch quiet;
    try {
      return call(*client->store);
    } catch (const std::exception& error) {
      return first_line(error);
    }
  };
  auto answer = thread_.run(std::move(guarded), limit);
  if (!answer) return failed(what, "waited " + seconds(limit));
  if (const auto* why = std::get_if<1>(&*answer)) return failed(what, *why);
  return std::get<0>(std::move(*answer));
}

Result<std::unique_ptr<TcpStore>> TcpStore::connect(const RankPlace& place, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const std::string address = fmt::format("{}:{}", place.store_host, place.store_port);
  const std::string waited =
      fmt::format("rendezvous: rank {} waited for the key-value store of rank 0", place.world.rank);
  if (!place.hosts_store) {
    STRATA_RETURN_IF_ERROR(
        wait_for_listener(place.store_host, place.store_port, timeout).with_context(waited));
  }
  std::unique_ptr<TcpStore> made(new TcpStore(place, timeout));
  auto start = [place, timeout, client = made->client_]() -> std::string {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(place.store_port);
    options.isServer = place.hosts_store;
    options.waitWorkers = false;
    options.useLibUV = false;
    options.timeout = timeout;
    if (place.store_fd >= 0) options.masterListenFd = place.store_fd;
    const QuietLibTorch quiet;
    try {
      client->store = c10::make_intrusive<c10d::TCPStore>(place.store_host, options);
      return "";
    } catch (const std::exception& error) {
      return first_line(error);
    }
  };
  const std::optional<std::string> why = made->thread_.run(std::move(start), left_until(deadline));
  if (!why) {
    return strata::timeout(fmt::format("{}: {} took the connection, but did not answer within {}",
                                       waited, address, seconds(timeout)));
  }
  if (why->empty()) return made;
  return io_error(fmt::format("rendezvous: rank {}: no key-value store at {}: {}{}",
                              place.world.rank, address, *why,
                              place.hosts_store ? ". HINT: set MASTER_PORT to a free port" : ""));
}

Status TcpStore::set(const std::string& key, const std::string& value) {
  std::vector<uint8_t> bytes(value.begin(), value.end());
  auto call = [name = prefix_ + key, bytes = std::move(bytes)](c10d::TCPStore& store) {
    return store.set(name, bytes), true;
  };
  return ask(fmt::format("setting '{}'", key), answer_time_, std::move(call)).status();
}

Result<int64_t> TcpStore::add(const std::string& key, int64_t delta) {
  return ask(
      fmt::format("adding to '{}'", key), answer_time_,
      [name = prefix_ + key, delta](c10d::TCPStore& store) { return store.add(name, delta); });
}

Result<std::string> TcpStore::get(const std::string& key, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  milliseconds pause = kShortestPause;
  // Empty, or the value.
  auto look = [name = prefix_ + key](c10d::TCPStore& store) -> std::optional<std::string> {
    if (!store.check({name})) return std::nullopt;
    const std::vector<uint8_t> value = store.get(name);
    return std::string(value.begin(), value.end());
  };
  while (true) {
    const milliseconds limit = std::min(answer_time_, left_until(deadline) + kEndTime);
    STRATA_ASSIGN_OR_RETURN(std::optional<std::string> value,
                            ask(fmt::format("reading '{}'", key), limit, look));
    if (value) return *std::move(value);
    const milliseconds left = left_until(deadline);
    if (left.count() == 0) {
      return strata::timeout(fmt::format(
          "store: rank {} waited {} for key '{}', which nobody has set. HINT: did every "
          "rank start?",
          place_.world.rank, seconds(timeout), key));
    }
    std::this_thread::sleep_for(std::min(left, pause));
    pause = std::min(pause * 2, kLongestPause);
  }
}

Result<std::unique_ptr<Store>> make_store(const RankPlace& place, milliseconds timeout) {
  if (place.world.size == 1) return std::unique_ptr<Store>(std::make_unique<InProcessStore>());
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<TcpStore> store, TcpStore::connect(place, timeout));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace strata::rendezvous
