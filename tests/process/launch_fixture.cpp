#include "tests/process/launch_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace strata::launch::testing {
namespace {

constexpr double kPatience = 10;
constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// True if something can be read within the time; the end of the pipe can.
bool is_readable(int fd, double seconds) {
  pollfd waited{fd, POLLIN, 0};
  return ::poll(&waited, 1, static_cast<int>(seconds * 1000)) > 0;
}

}  // namespace

LaunchTest::LaunchTest() : begin_(Clock::now()) {
  std::string name = ::testing::TempDir() + "strata_launch_XXXXXX";
  folder_ = ::mkdtemp(name.data());
}

LaunchTest::~LaunchTest() {
  if (launcher_ > 0) {
    ::kill(launcher_, SIGKILL);
    ::waitpid(launcher_, nullptr, 0);
  }
  close_pipes();
  std::filesystem::remove_all(folder_);
}

void LaunchTest::close_pipes() {
  for (int* fd : {&events_, &input_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void LaunchTest::start(std::vector<std::string> args,
                       std::map<std::string, std::string> environment) {
  const std::string program = STRATA_BINARY_DIR "/tests/launch_probe";
  args.insert(args.begin(), program);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  close_pipes();
  int events[2];
  int input[2];
  ASSERT_EQ(::pipe2(events, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(input, O_CLOEXEC), 0);
  const int out = ::open((folder_ + "/out").c_str(), kNew, 0600);
  const int err = ::open((folder_ + "/err").c_str(), kNew, 0600);
  mark();
  launcher_ = ::fork();
  if (launcher_ == 0) {
    for (const auto& [name, value] : environment) {
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
    const int told = ::fcntl(events[1], F_DUPFD, 10);  // inherited
    ::setenv("PROBE_FD", std::to_string(told).c_str(), 1);
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(output_fd_ >= 0 ? output_fd_ : out, STDOUT_FILENO);
    ::dup2(output_fd_ >= 0 ? output_fd_ : err, STDERR_FILENO);
    if (closes_standard_) {
      for (int fd = 0; fd <= 2; ++fd) ::close(fd);
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(96);
  }
  for (const int fd : {events[1], input[0], out, err}) ::close(fd);
  events_ = events[0];
  input_ = input[1];
}

Event LaunchTest::next() {
  const Clock::time_point begin = Clock::now();
  size_t end = unread_.find('\n');
  while (end == std::string::npos) {
    char buffer[4096];
    const bool came = is_readable(events_, kPatience - seconds_since(begin));
    const ssize_t size = came ? ::read(events_, buffer, sizeof buffer) : 0;
    if (size <= 0) {
      ADD_FAILURE() << (came ? "all ranks have ended" : "no rank told anything in time")
                    << "; stderr:\n"
                    << err();
      return {};
    }
    unread_.append(buffer, static_cast<size_t>(size));
    end = unread_.find('\n');
  }
  Event event;
  std::istringstream(unread_.substr(0, end)) >> event.what >> event.rank >> event.pid;
  unread_.erase(0, end + 1);
  return event;
}

std::map<int, pid_t> LaunchTest::all_tell(const std::string& what, int count) {
  std::map<int, pid_t> pids;
  for (int i = 0; i < count; ++i) {
    const Event event = next();
    EXPECT_EQ(event.what, what);
    EXPECT_TRUE(pids.emplace(event.rank, event.pid).second) << "rank " << event.rank << " twice";
    if (event.rank < 0) break;
  }
  return pids;
}

bool LaunchTest::everybody_is_gone_within(double seconds) {
  const Clock::time_point begin = Clock::now();
  char buffer[4096];
  while (is_readable(events_, std::max(0.0, seconds - seconds_since(begin)))) {
    if (::read(events_, buffer, sizeof buffer) <= 0) return true;
  }
  return false;
}

void LaunchTest::send(int signal) { ASSERT_EQ(::kill(launcher_, signal), 0); }

void LaunchTest::type(const std::string& text) {
  ASSERT_EQ(::write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

Ended LaunchTest::wait_for_end() {
  if (!everybody_is_gone_within(kPatience)) {
    ADD_FAILURE() << "somebody still runs";
    ::kill(launcher_, SIGKILL);
  }
  Ended ended;
  ended.seconds = seconds_since(begin_);
  int status = 0;
  EXPECT_EQ(::waitpid(launcher_, &status, 0), launcher_);
  launcher_ = -1;
  ended.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

std::string LaunchTest::read_file(const std::string& name) const {
  std::ifstream file(folder_ + "/" + name);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string LaunchTest::out() const { return read_file("out"); }
std::string LaunchTest::err() const { return read_file("err"); }

}  // namespace strata::launch::testing
