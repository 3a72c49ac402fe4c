#include "strata/launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace strata::launch {
namespace {

constexpr int kExecDeadlineMs = 10'000;

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return io_error(
        fmt::format("launch: no pipe: {}. HINT: raise the limit of open files, ulimit -n",
                    std::strerror(errno)));
  }
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* environment;
  pid_t parent;
  int passed_fd;
  int out;  // -1: inherit
  int err;
  int failure;  // gets errno if exec fails; closed by exec
  const sigset_t* mask;
};

// In the child: async-signal-safe calls only.
[[noreturn]] void become_rank(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // it died before the line above
  bool is_set_up = true;
  if (plan.out >= 0) {
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    is_set_up = nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0 &&
                ::dup2(plan.out, STDOUT_FILENO) >= 0 && ::dup2(plan.err, STDERR_FILENO) >= 0;
  }
  if (plan.passed_fd >= 0) is_set_up = is_set_up && ::fcntl(plan.passed_fd, F_SETFD, 0) == 0;
  if (is_set_up) {
    ::sigprocmask(SIG_SETMASK, plan.mask, nullptr);
    ::execve(plan.program, plan.argv, plan.environment);
  }
  const int why = errno;
  [[maybe_unused]] const ssize_t written = ::write(plan.failure, &why, sizeof why);
  ::_exit(127);
}

// 0, or the errno with which exec failed.
int wait_for_exec(int failure) {
  pollfd waited{failure, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&waited, 1, kExecDeadlineMs);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return ETIMEDOUT;
  int why = 0;
  return ::read(failure, &why, sizeof why) == sizeof why ? why : 0;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Descriptor::release() { return std::exchange(fd_, -1); }

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string Ending::text() const {
  return signal != 0 ? fmt::format("was killed by {}", signal_name(signal))
                     : fmt::format("ended with exit code {}", exit_code);
}

Result<RankProcess> RankProcess::start(const RankCommand& command) {
  const std::vector<char*> argv = pointers(command.argv);
  const std::vector<char*> environment = pointers(command.environment);
  STRATA_ASSIGN_OR_RETURN(Pipe failure, make_pipe());
  Pipe out;
  Pipe err;
  if (command.is_captured) {
    STRATA_ASSIGN_OR_RETURN(out, make_pipe());
    STRATA_ASSIGN_OR_RETURN(err, make_pipe());
    ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  }
  const ChildPlan plan{.program = command.program.c_str(),
                       .argv = argv.data(),
                       .environment = environment.data(),
                       .parent = ::getpid(),
                       .passed_fd = command.passed_fd,
                       .out = out.write.get(),
                       .err = err.write.get(),
                       .failure = failure.write.get(),
                       .mask = &command.signal_mask};
  RankProcess process;
  process.rank_ = command.rank;
  process.pid_ = ::fork();
  if (process.pid_ == 0) become_rank(plan);
  if (process.pid_ < 0) {
    return io_error(fmt::format("launch: rank {} could not be started: {}", command.rank,
                                std::strerror(errno)));
  }
  failure.write.reset();
  process.is_running_ = true;
  if (const int why = wait_for_exec(failure.read.get()); why != 0) {
    ::kill(process.pid_, SIGKILL);
    ::waitpid(process.pid_, nullptr, 0);
    return io_error(fmt::format("launch: rank {}: '{}' could not be started: {}", command.rank,
                                command.program, std::strerror(why)));
  }
  process.out = std::move(out.read);
  process.err = std::move(err.read);
  return process;
}

void RankProcess::send(int signal) const {
  if (is_running_) ::kill(-pid_, signal);
}

bool RankProcess::reap() {
  if (!is_running_) return false;
  int status = 0;
  const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  is_running_ = false;
  if (ended < 0) {
    ending_.exit_code = 127;  // somebody else has taken it
  } else if (WIFSIGNALED(status)) {
    ending_.signal = WTERMSIG(status);
  } else {
    ending_.exit_code = WEXITSTATUS(status);
  }
  return true;
}

}  // namespace strata::launch
