// Takes what ranks write, keeps the last lines, and passes it on where that is wanted.
#ifndef STRATA_LAUNCH_OUTPUT_RELAY_H_
#define STRATA_LAUNCH_OUTPUT_RELAY_H_

#include <chrono>
#include <deque>
#include <string>

#include "strata/launch/rank_process.h"

namespace strata::launch {

// What goes out to one of our own descriptors. Never blocks: what a slow reader does not take yet
// is kept, and its writers are not read meanwhile.
class OutputSink {
 public:
  explicit OutputSink(int fd) : fd_(fd) {}

  void add(const std::string& text) { pending_ += text; }
  bool has_pending() const { return !pending_.empty(); }
  bool is_full() const { return pending_.size() > kFull; }
  int fd() const { return fd_; }
  // Writes what the descriptor takes now; throws away what a closed reader can no longer take.
  void write_some();
  // Writes all, for at most this long.
  void flush(std::chrono::milliseconds limit);

 private:
  static constexpr size_t kFull = 64 << 10;
  int fd_;
  std::string pending_;
};

// One captured stream of one rank.
class OutputStream {
 public:
  // `sink` may be null: then lines are kept only.
  OutputStream(Descriptor source, std::string prefix, OutputSink* sink)
      : source_(std::move(source)), prefix_(std::move(prefix)), sink_(sink) {}

  int fd() const { return source_.get(); }
  // Open, and its sink takes more.
  bool is_wanted() const { return source_.is_open() && (sink_ == nullptr || !sink_->is_full()); }
  // Reads what is there now; closes at the end of the stream.
  void read_some();
  // The rank has ended: reads what is left and gives out an unfinished line.
  void finish();
  // The last lines, each with "  | " in front.
  std::string tail() const;

 private:
  static constexpr size_t kTailLines = 20;
  static constexpr size_t kLongestLine = 16 << 10;
  void take(const char* data, size_t size);
  void end_line();

  Descriptor source_;
  std::string prefix_;
  OutputSink* sink_;
  std::string line_;
  std::deque<std::string> last_lines_;
};

}  // namespace strata::launch

#endif  // STRATA_LAUNCH_OUTPUT_RELAY_H_
