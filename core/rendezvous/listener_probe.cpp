#include "strata/rendezvous/listener_probe.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace strata::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// 0, or the errno of the attempt.
int try_address(const addrinfo& address, milliseconds limit) {
  const int fd = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                          address.ai_protocol);
  if (fd < 0) return errno;
  int why = ::connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (why == EINPROGRESS) {
    pollfd waited{fd, POLLOUT, 0};
    socklen_t size = sizeof why;
    if (::poll(&waited, 1, static_cast<int>(limit.count())) <= 0) {
      why = ETIMEDOUT;
    } else {
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size);
    }
  }
  ::close(fd);
  return why;
}

// "" if somebody listens, else why not.
std::string try_host(const std::string& host, int port, milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return ::gai_strerror(error);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  int why = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    why = try_address(*address, limit);
    if (why == 0) return "";
  }
  return std::strerror(why);
}

}  // namespace

Status wait_for_listener(const std::string& host, int port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  milliseconds pause(2);
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const std::string why =
        try_host(host, port, std::clamp(left, milliseconds(1), milliseconds(1000)));
    if (why.empty()) return {};
    if (Clock::now() + pause >= deadline) {
      return strata::timeout(fmt::format("nobody listened at {}:{} within {:g} s: {}", host, port,
                                         static_cast<double>(timeout.count()) / 1000, why));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(100));
  }
}

}  // namespace strata::rendezvous
