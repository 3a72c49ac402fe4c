// The key-value store of ranks in several processes: LibTorch's TCPStore with deadlines and words.
#ifndef STRATA_RENDEZVOUS_TCP_STORE_H_
#define STRATA_RENDEZVOUS_TCP_STORE_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "strata/base/store.h"
#include "strata/rendezvous/deadline_thread.h"
#include "strata/rendezvous/place.h"

namespace c10d {
class TCPStore;
}

namespace strata::rendezvous {

// One process holds the keys and serves them from a thread; every rank is a client. LibTorch's
// calls may block for ever on a server that is stopped or out of reach: they run on a thread of
// ours, and the caller stops waiting when his time is over.
class TcpStore : public Store {
 public:
  // Connects, and serves first if place.hosts_store. Waits up to `timeout` for the server.
  //
  // Returns   kTimeout  nobody listens there; the message names the address
  //           kIo       the port is taken, the host has no address
  static Result<std::unique_ptr<TcpStore>> connect(const RankPlace& place,
                                                   std::chrono::milliseconds timeout);
  ~TcpStore() override;

  // All of these return kPeerLost if the server is gone or does not answer within the timeout of
  // connect().
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  Result<int64_t> add(const std::string& key, int64_t delta) override;

 private:
  struct Client;
  TcpStore(RankPlace place, std::chrono::milliseconds answer_time);
  Status failed(const std::string& what, const std::string& why) const;
  // The value of `call(store)` on the thread.
  template <typename Call>
  auto ask(const std::string& what, std::chrono::milliseconds limit, Call call)
      -> Result<decltype(call(std::declval<c10d::TCPStore&>()))>;

  RankPlace place_;
  std::string prefix_;
  std::chrono::milliseconds answer_time_;
  std::shared_ptr<Client> client_;
  DeadlineThread thread_;
};

// The store of a world: in process for one rank.
Result<std::unique_ptr<Store>> make_store(const RankPlace& place,
                                          std::chrono::milliseconds timeout);

// Returns when every rank has come here. `name` is used once in a run.
//
// Rank 0 returns last, so the process that serves the store may end after a last call of this.
// Every rank returns the same: ok, or which ranks are missing.
//
// Returns   kTimeout   "'start': ranks 2, 3 of 4 did not come within 30 s"
//           kPeerLost  the store is gone
Status wait_for_all_ranks(Store& store, const World& world, const std::string& name,
                          std::chrono::milliseconds timeout);

}  // namespace strata::rendezvous

#endif  // STRATA_RENDEZVOUS_TCP_STORE_H_
