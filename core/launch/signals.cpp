#include "strata/launch/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace strata::launch {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Result<SignalEvents> SignalEvents::open() {
  SignalEvents events;
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signal : kForwarded) {
    if (!is_ignored(signal)) sigaddset(&wanted, signal);
  }
  Descriptor fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.is_open()) return io_error(fmt::format("launch: no signalfd: {}", std::strerror(errno)));
  ::sigprocmask(SIG_BLOCK, &wanted, &events.old_mask_);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;  // an inherited SIG_IGN would reap our children for us
  ::sigaction(SIGCHLD, &action, &events.old_child_);
  ::sigaction(SIGPIPE, nullptr, &events.old_pipe_);
  events.fd_ = std::move(fd);
  return events;
}

SignalEvents::~SignalEvents() {
  if (!fd_.is_open()) return;
  while (next().has_value()) {
  }
  ::sigaction(SIGCHLD, &old_child_, nullptr);
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

void SignalEvents::ignore_broken_pipes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
}

std::optional<int> SignalEvents::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace strata::launch
