// A small language for tests of the launcher: start launch_probe, wait for what its ranks tell,
// send signals, see how it ends.
#ifndef STRATA_TESTS_PROCESS_LAUNCH_FIXTURE_H_
#define STRATA_TESTS_PROCESS_LAUNCH_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace strata::launch::testing {

using Clock = std::chrono::steady_clock;

// What a rank told.
struct Event {
  std::string what;
  int rank = -1;
  pid_t pid = -1;
};

struct Ended {
  int exit_code = -1;  // 128 + N if a signal killed it
  double seconds = 0;  // since it was started, or since mark()
};

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest();
  ~LaunchTest() override;

  // Starts the launcher. `environment`: more variables; a value of "" unsets one.
  void start(std::vector<std::string> args, std::map<std::string, std::string> environment = {});
  // stdout and stderr of the next start are this descriptor; -1: files, read by out() and err().
  void use_output(int fd) { output_fd_ = fd; }
  // The next start has these descriptors closed.
  void close_standard_descriptors() { closes_standard_ = true; }

  // The next event of any rank; fails the test after 10 s.
  Event next();
  // That many events, by rank. Each must be `what`.
  std::map<int, pid_t> all_tell(const std::string& what, int count);
  // The launcher and all its ranks have ended: nobody holds the pipe. True within the time.
  bool everybody_is_gone_within(double seconds);

  void send(int signal);               // to the launcher
  void type(const std::string& text);  // into its stdin
  void mark() { begin_ = Clock::now(); }
  Ended wait_for_end();
  std::string out() const;
  std::string err() const;
  pid_t launcher() const { return launcher_; }

 private:
  void close_pipes();
  std::string read_file(const std::string& name) const;

  std::string folder_;
  pid_t launcher_ = -1;
  int events_ = -1;
  int input_ = -1;
  int output_fd_ = -1;
  bool closes_standard_ = false;
  std::string unread_;
  Clock::time_point begin_;
};

}  // namespace strata::launch::testing

#endif  // STRATA_TESTS_PROCESS_LAUNCH_FIXTURE_H_
