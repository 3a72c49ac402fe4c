#include "strata/launch/output_relay.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace strata::launch {

void OutputSink::write_some() {
  while (!pending_.empty()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    // A pipe that is ready takes PIPE_BUF bytes without blocking.
    const ssize_t written =
        ::write(fd_, pending_.data(), std::min<size_t>(pending_.size(), PIPE_BUF));
    if (written > 0) {
      pending_.erase(0, static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      pending_.clear();
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

void OutputSink::flush(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  write_some();
  while (!pending_.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd ready{fd_, POLLOUT, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) return;
    write_some();
  }
}

void OutputStream::read_some() {
  char buffer[16 << 10];
  const ssize_t size = ::read(source_.get(), buffer, sizeof buffer);
  if (size > 0) {
    take(buffer, static_cast<size_t>(size));
  } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
    source_.reset();
  }
}

void OutputStream::finish() {
  char buffer[16 << 10];
  // Bounded by what a pipe holds: a process that the rank left behind may go on writing.
  for (int i = 0; i < 64 && source_.is_open(); ++i) {
    const ssize_t size = ::read(source_.get(), buffer, sizeof buffer);
    if (size <= 0) break;
    take(buffer, static_cast<size_t>(size));
  }
  source_.reset();
  if (!line_.empty()) end_line();
}

std::string OutputStream::tail() const {
  std::string out;
  for (const std::string& line : last_lines_) out += "\n  | " + line;
  return out;
}

void OutputStream::take(const char* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n' || line_.size() >= kLongestLine) end_line();
    if (data[i] != '\n') line_ += data[i];
  }
}

void OutputStream::end_line() {
  if (sink_ != nullptr) sink_->add(prefix_ + line_ + "\n");
  last_lines_.push_back(std::move(line_));
  line_.clear();
  if (last_lines_.size() > kTailLines) last_lines_.pop_front();
}

}  // namespace strata::launch
