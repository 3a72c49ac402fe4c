// The key-value store between ranks; here all are threads or clients of one process.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "strata/rendezvous/tcp_store.h"

namespace strata::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr milliseconds kLong{20'000};

// A socket on a free port, as a launcher hands it over.
struct Listener {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  int port = 0;
  explicit Listener(bool listens = true) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(fd, any, size), 0);
    EXPECT_TRUE(!listens || ::listen(fd, 16) == 0);
    EXPECT_EQ(::getsockname(fd, any, &size), 0);
    port = ntohs(address.sin_port);
  }
};

class TcpStoreTest : public testing::Test {
 protected:
  RankPlace place(int rank, int size = 2) const {
    RankPlace p;
    p.world = {.rank = rank, .size = size, .local_rank = rank, .local_size = size};
    p.store_host = "127.0.0.1";
    p.store_port = listener_.port;
    p.hosts_store = rank == 0;
    if (rank == 0) p.store_fd = listener_.fd;
    p.run_id = "test";
    return p;
  }
  std::unique_ptr<Store> connect(int rank, int size = 2) {
    auto store = make_store(place(rank, size), kLong);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(*store) : nullptr;
  }

  Listener listener_;
};

TEST_F(TcpStoreTest, OneRankReadsWhatAnotherHasSet) {
  const auto zero = connect(0);
  const auto one = connect(1);
  ASSERT_TRUE(zero->set("key", std::string("a\0b", 3)).ok());
  EXPECT_EQ(*one->get("key", kLong), std::string("a\0b", 3));
  ASSERT_TRUE(one->set("key", "").ok());
  EXPECT_EQ(*zero->get("key", kLong), "");
  EXPECT_EQ(*zero->add("count", 2), 2);
  EXPECT_EQ(*one->add("count", 3), 5);
}

TEST_F(TcpStoreTest, AReaderWaitsForTheKeyWhileOthersUseTheStore) {
  const auto zero = connect(0);
  const auto one = connect(1);
  auto first = std::async(std::launch::async, [&] { return one->get("late", kLong); });
  auto second = std::async(std::launch::async, [&] { return one->get("later", kLong); });
  ASSERT_TRUE(one->set("meanwhile", "x").ok());
  ASSERT_TRUE(zero->get("meanwhile", kLong).ok());
  ASSERT_TRUE(zero->set("later", "2").ok());
  EXPECT_EQ(*second.get(), "2");
  ASSERT_TRUE(zero->set("late", "1").ok());
  EXPECT_EQ(*first.get(), "1");
}

TEST_F(TcpStoreTest, ATimeOutNamesTheKeyAndTheTime) {
  const auto zero = connect(0);
  const auto result = zero->get("never", milliseconds(50));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kTimeout);
  EXPECT_THAT(result.status().message(), AllOf(HasSubstr("'never'"), HasSubstr("0.05 s")));
  ASSERT_TRUE(zero->set("after", "works").ok());
  EXPECT_TRUE(zero->get("after", kLong).ok());
}

TEST_F(TcpStoreTest, AStoreThatIsGoneIsALostPeer) {
  auto zero = connect(0);
  const auto one = connect(1);
  ASSERT_TRUE(one->set("a", "b").ok());
  zero.reset();
  EXPECT_EQ(one->get("other", kLong).status().code(), Code::kPeerLost);
  const Status status = one->add("n", 1).status();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:" + std::to_string(listener_.port)));
}

TEST_F(TcpStoreTest, ARankWhoseStoreNeverComesSaysWhereItWaited) {
  const Listener silent(/*listens=*/false);
  RankPlace p = place(1);
  p.store_port = silent.port;
  const auto store = make_store(p, milliseconds(100));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), Code::kTimeout);
  EXPECT_THAT(store.status().message(),
              AllOf(HasSubstr("rank 1 waited for the key-value store of rank 0"),
                    HasSubstr("127.0.0.1:" + std::to_string(silent.port)), HasSubstr("0.1 s")));
  ::close(silent.fd);
}

TEST_F(TcpStoreTest, ARankWhoseStoreListensButNeverAnswersDoesNotHang) {
  auto connecting = std::async(std::launch::async,
                               [&] { return make_store(place(1), milliseconds(200)).status(); });
  ASSERT_EQ(connecting.wait_for(kLong), std::future_status::ready);
  const Status status = connecting.get();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1"), HasSubstr("0.2 s")));
}

TEST_F(TcpStoreTest, APortThatIsTakenIsAnError) {
  RankPlace p = place(0);
  p.store_fd = -1;  // the test's own listener has the port
  const auto store = make_store(p, kLong);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), Code::kIo);
  EXPECT_THAT(store.status().message(), HasSubstr("HINT: set MASTER_PORT"));
}

TEST_F(TcpStoreTest, KeysOfDifferentRunsStayApart) {
  const auto zero = connect(0);
  RankPlace other = place(1);
  other.run_id = "other";
  const auto one = make_store(other, kLong);
  ASSERT_TRUE(one.ok());
  ASSERT_TRUE(zero->set("key", "1").ok());
  EXPECT_EQ((*one)->get("key", milliseconds(1)).status().code(), Code::kTimeout);
}

class Meeting : public TcpStoreTest {
 protected:
  // Ranks of `present` meet, each in a thread with a client of its own.
  std::vector<Status> meet(const std::vector<int>& present, int size, milliseconds timeout) {
    std::vector<std::unique_ptr<Store>> stores;
    for (const int rank : present) stores.push_back(connect(rank, size));
    std::vector<std::future<Status>> meetings;
    for (size_t i = 0; i < present.size(); ++i) {
      meetings.push_back(std::async(std::launch::async, [&, i] {
        return wait_for_all_ranks(*stores[i], place(present[i], size).world, "start", timeout);
      }));
    }
    std::vector<Status> results;
    for (auto& meeting : meetings) results.push_back(meeting.get());
    return results;
  }
};

TEST_F(Meeting, EndsWhenAllRanksHaveCome) {
  for (const Status& status : meet({0, 1, 2, 3}, 4, kLong)) EXPECT_TRUE(status.ok());
}

TEST_F(Meeting, WithoutSomeRanksNamesThemOnEveryRank) {
  for (const Status& status : meet({0, 2}, 4, milliseconds(100))) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_THAT(status.message(), HasSubstr("'start': ranks 1, 3 of 4 did not come within 0.1 s"));
  }
}

TEST_F(Meeting, IsOverAtOnceForOneRank) {
  InProcessStore store;
  EXPECT_TRUE(wait_for_all_ranks(store, World{}, "start", milliseconds(0)).ok());
}

}  // namespace
}  // namespace strata::rendezvous
