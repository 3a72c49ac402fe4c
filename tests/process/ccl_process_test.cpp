// Ranks as processes: shared memory across address spaces, and the death of a rank.
//
// Children are forked by a program that has no other thread and has not opened the library, and
// leave by _exit.
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>

#include "tests/world/ccl_fixture.h"

namespace strata::tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What parent and children share.
struct Board {
  std::atomic<int> has_id;
  std::atomic<int> steps[4];  // a rank says how far it is
  std::atomic<int64_t> killed_at;
  nccl::UniqueId id;
  char text[4][1200];  // what a rank has to say; empty is good
};

int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

void wait_until(const std::function<bool()>& is_so) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(20);
  while (!is_so() && steady_clock::now() < deadline) ::usleep(200);
}

class CclProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    board_ = static_cast<Board*>(
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(board_, MAP_FAILED);
  }
  void TearDown() override { ::munmap(board_, sizeof(Board)); }

  // Runs `body` once a rank in a process of its own; what it returns is on the board afterwards.
  void run(int size, const std::function<std::string(CclRank&, Board&)>& body) {
    for (int rank = 0; rank < size; ++rank) {
      children_[rank] = ::fork();
      ASSERT_GE(children_[rank], 0);
      if (children_[rank] == 0) run_child(rank, size, body);
    }
    for (int rank = 0; rank < size; ++rank) ::waitpid(children_[rank], &status_[rank], 0);
  }

  [[noreturn]] void run_child(int rank, int size,
                              const std::function<std::string(CclRank&, Board&)>& body) {
    ::alarm(30);
    if (rank == 0) {
      ccl().get_unique_id(&board_->id);
      board_->has_id = 1;
    }
    wait_until([this] { return board_->has_id.load() == 1; });
    TestQueue queue(true);
    ccl().strata_ccl_set_timeout(20'000);
    CclRank mine{rank, size, nullptr, &queue, queue.stream()};
    nccl::Config config;
    config.comm_name = "across processes";
    std::string text;
    if (ccl().comm_init_rank_config(&mine.comm, size, board_->id, rank, &config) !=
        nccl::Result::kSuccess) {
      text = ccl().get_last_error(nullptr);
    } else {
      text = body(mine, *board_);
      ccl().comm_destroy(mine.comm);
    }
    std::strncpy(board_->text[rank], text.c_str(), sizeof(board_->text[rank]) - 1);
    ::_exit(text.empty() ? 0 : 1);
  }

  Board* board_ = nullptr;
  pid_t children_[4] = {};
  int status_[4] = {};
};

// all_reduce of `count` floats; "" if the result is right.
std::string add_up(CclRank& r, TestBuffer<float>& buffer, size_t count) {
  for (size_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(i % 1000 + 1) * (1 << r.rank);
  ccl().all_reduce(buffer.data(), buffer.data(), count, nccl::DataType::kFloat32, nccl::Op::kSum,
                   r.comm, r.stream);
  r.queue->drain();
  if (r.async_error() != nccl::Result::kSuccess) return r.error_text();
  for (size_t i = 0; i < count; ++i) {
    const float expected = static_cast<float>(i % 1000 + 1) * ((1 << r.size) - 1);
    if (buffer[i] != expected) return "element " + std::to_string(i) + " is wrong";
  }
  return "";
}

TEST_F(CclProcess, ReadsAndWritesMemoryOfOtherProcesses) {
  for (const int size : {2, 3, 4}) {
    board_->has_id = 0;
    run(size, [](CclRank& r, Board&) {
      for (const bool is_shared : {true, false}) {
        for (const size_t count : {1, 1001, 200'000}) {
          TestBuffer<float> buffer(is_shared, count);
          if (std::string wrong = add_up(r, buffer, count); !wrong.empty()) return wrong;
        }
        // Mixed: only some ranks share.
        TestBuffer<float> buffer(r.rank % 2 == (is_shared ? 1 : 0), 200'000);
        if (std::string wrong = add_up(r, buffer, 200'000); !wrong.empty()) return wrong;
      }
      return std::string();
    });
    for (int rank = 0; rank < size; ++rank) EXPECT_STREQ(board_->text[rank], "") << rank;
  }
}

// Bytes of shared regions that are resident in this process.
size_t resident_shared_bytes() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool is_shared = false;
  size_t bytes = 0;
  while (std::getline(maps, line)) {
    size_t kilobytes = 0;
    if (line.find("-") != std::string::npos && line.find(":") > line.find(" ")) {
      is_shared = line.find("memfd:strata-shared") != std::string::npos;
    } else if (is_shared && std::sscanf(line.c_str(), "Rss: %zu kB", &kilobytes) == 1) {
      bytes += kilobytes * 1024;
    }
  }
  return bytes;
}

TEST_F(CclProcess, KeepsNoMemoryOfRegionsThatTheirOwnerFreed) {
  run(2, [](CclRank& r, Board&) {
    constexpr size_t kCount = 1 << 20;
    for (int round = 0; round < 8; ++round) {
      TestBuffer<float> buffer(true, kCount);
      if (std::string wrong = add_up(r, buffer, kCount); !wrong.empty()) return wrong;
      const size_t resident = resident_shared_bytes();
      // Its own region and the peer's; regions of earlier rounds have left.
      if (resident < kCount * 4 || resident > kCount * 9) {
        return "round " + std::to_string(round) + ": " + std::to_string(resident) + " bytes";
      }
      // The peer has read this buffer before it is freed.
      float number = 0;
      ccl().all_reduce(&number, &number, 1, nccl::DataType::kFloat32, nccl::Op::kSum, r.comm,
                       r.stream);
      r.queue->drain();
    }
    return std::string();
  });
  EXPECT_STREQ(board_->text[0], "");
  EXPECT_STREQ(board_->text[1], "");
}

std::set<std::string> files_in_dev_shm() {
  std::set<std::string> names;
  if (DIR* folder = ::opendir("/dev/shm")) {
    while (const dirent* entry = ::readdir(folder)) names.insert(entry->d_name);
    ::closedir(folder);
  }
  return names;
}

TEST_F(CclProcess, NamesARankThatWasKilledWithinASecondAndLeavesNothingBehind) {
  const std::set<std::string> before = files_in_dev_shm();
  run(2, [](CclRank& r, Board& board) {
    TestBuffer<float> buffer(true, 1000);
    if (std::string wrong = add_up(r, buffer, 1000); !wrong.empty()) return wrong;
    if (r.rank == 1) {
      // Rank 0 sleeps in collective #2 when this happens.
      wait_until([&] { return board.steps[0].load() == 1; });
      ::usleep(30'000);
      board.killed_at = now_ms();
      ::kill(::getpid(), SIGKILL);
    }
    board.steps[0] = 1;
    add_up(r, buffer, 1000);
    const int64_t took = now_ms() - board.killed_at.load();
    if (took > 900) return "took " + std::to_string(took) + " ms";
    return r.error_text();
  });
  EXPECT_TRUE(WIFSIGNALED(status_[1]));
  const std::string expected = "rank 1 (pid " + std::to_string(children_[1]) +
                               ") died while rank 0 waited for it in all_reduce #2 (1000 f32, "
                               "sum) of communicator 'across processes'";
  EXPECT_EQ(board_->text[0], expected);
  EXPECT_EQ(files_in_dev_shm(), before);
}

TEST_F(CclProcess, NoticesADeadRankInTheMiddleOfACollective) {
  run(3, [](CclRank& r, Board& board) {
    // Staged in many chunks, again and again, until rank 2 is gone.
    TestBuffer<float> buffer(false, 500'000);
    if (r.rank == 2) {
      std::thread([&board] {
        wait_until([&] { return board.steps[2].load() >= 3; });
        board.killed_at = now_ms();
        ::kill(::getpid(), SIGKILL);
      }).detach();
    }
    std::string wrong;
    while (wrong.empty()) {
      wrong = add_up(r, buffer, 500'000);
      ++board.steps[r.rank];
    }
    if (now_ms() - board.killed_at.load() > 900) return std::string("too late: ") + wrong;
    return wrong;
  });
  for (const int rank : {0, 1}) {
    EXPECT_NE(std::string(board_->text[rank])
                  .find("rank 2 (pid " + std::to_string(children_[2]) + ") died while rank "),
              std::string::npos)
        << board_->text[rank];
  }
}

TEST_F(CclProcess, AbortEndsTheWaitOfOtherProcesses) {
  run(2, [](CclRank& r, Board& board) {
    TestBuffer<float> buffer(true, 1000);
    if (r.rank == 1) {
      wait_until([&] { return board.steps[0].load() == 1; });
      ::usleep(30'000);
      board.killed_at = now_ms();
      ccl().comm_abort(r.comm);
      wait_until([&] { return board.steps[0].load() == 2; });
      return std::string();
    }
    board.steps[0] = 1;
    const std::string wrong = add_up(r, buffer, 1000);
    const int64_t took = now_ms() - board.killed_at.load();
    board.steps[0] = 2;
    return took > 900 ? "took " + std::to_string(took) + " ms" : wrong;
  });
  EXPECT_STREQ(board_->text[0],
               "rank 1 aborted communicator 'across processes' (reported by rank 1)");
  EXPECT_STREQ(board_->text[1], "");
}

TEST_F(CclProcess, SaysThatTheMakerOfTheIdIsGone) {
  run(1, [](CclRank&, Board&) { return std::string(); });
  nccl::Comm comm = nullptr;
  const pid_t child = ::fork();
  if (child == 0) {
    EXPECT_NE(ccl().comm_init_rank(&comm, 1, board_->id, 0), nccl::Result::kSuccess);
    std::strncpy(board_->text[0], ccl().get_last_error(nullptr), sizeof(board_->text[0]) - 1);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_NE(std::string(board_->text[0]).find("HINT: the process must be alive, of the same user"),
            std::string::npos)
      << board_->text[0];
}

}  // namespace
}  // namespace strata::tests
