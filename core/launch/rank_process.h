// One rank as a child process.
#ifndef STRATA_LAUNCH_RANK_PROCESS_H_
#define STRATA_LAUNCH_RANK_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "strata/base/status.h"

namespace strata::launch {

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

struct RankCommand {
  int rank = 0;
  std::string program;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value"
  int passed_fd = -1;                    // stays open in the child; -1: none
  bool is_captured = false;              // stdout and stderr into pipes, stdin from /dev/null
  sigset_t signal_mask;                  // of the child
};

// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  // 0: it ended with exit_code

  bool is_failure() const { return exit_code != 0 || signal != 0; }
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
  // "was killed by SIGSEGV", "ended with exit code 3".
  std::string text() const;
};

class RankProcess {
 public:
  // Returns when the program runs in the child: in a process group of its own, killed by the kernel
  // when the calling thread's process dies.
  //
  // Returns   kIo  fork, a pipe or exec failed; no child is left
  static Result<RankProcess> start(const RankCommand& command);

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool is_running() const { return is_running_; }
  const Ending& ending() const { return ending_; }

  // To the process and what it has started.
  void send(int signal) const;
  // Takes the end of the process if it has ended since the last call. Does not block.
  bool reap();

  // Read ends, non-blocking; closed if the output is not captured.
  Descriptor out;
  Descriptor err;

 private:
  int rank_ = 0;
  pid_t pid_ = -1;
  bool is_running_ = false;
  Ending ending_;
};

// "SIGTERM".
std::string signal_name(int signal);

}  // namespace strata::launch

#endif  // STRATA_LAUNCH_RANK_PROCESS_H_
