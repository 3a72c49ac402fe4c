#include "strata/launch/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "strata/base/check.h"
#include "strata/base/text.h"
#include "strata/launch/command_start.h"
#include "strata/launch/environment.h"
#include "strata/launch/output_relay.h"
#include "strata/launch/rank_process.h"
#include "strata/launch/signals.h"

extern char** environ;

namespace strata::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kKilledDeadline{5000};  // for what the kernel cannot end at once
constexpr milliseconds kFlushDeadline{1000};

// With stdin, stdout or stderr closed, the next file opened would take its number.
void fill_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) {
      [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
    }
  }
}

struct StoreSocket {
  Descriptor socket;
  int port = 0;
};

Result<StoreSocket> listen_on_free_port() {
  StoreSocket made;
  made.socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!made.socket.is_open() || ::bind(made.socket.get(), any, size) != 0 ||
      ::listen(made.socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(made.socket.get(), any, &size) != 0) {
    return io_error(
        fmt::format("launch: no listening socket on 127.0.0.1 for the key-value store: {}",
                    std::strerror(errno)));
  }
  made.port = ntohs(address.sin_port);
  return made;
}

std::string random_id() {
  uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != sizeof id) id = static_cast<uint64_t>(::getpid());
  return fmt::format("{:016x}", id);
}

// The file behind this process; the link itself if it was replaced meanwhile.
std::string own_program() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, size > 0 ? static_cast<size_t>(size) : 0);
  return size > 0 && ::access(program.c_str(), X_OK) == 0 ? program : "/proc/self/exe";
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> argv = text::split(all, '\0');
  if (!argv.empty() && argv.back().empty()) argv.pop_back();
  return argv;
}

class Launch {
 public:
  Launch(const LaunchPlan& plan, SignalEvents& signals) : plan_(plan), signals_(signals) {}
  ~Launch() { kill_all(); }

  Status start_ranks();
  LaunchOutcome run();

 private:
  // How far the end of the ranks has come.
  enum class Phase {
    kRunning,     // nobody has failed
    kGrace,       // one has; others may end by themselves
    kTerminated,  // SIGTERM was sent
    kKilled,      // SIGKILL was sent
  };
  struct Rank {
    RankProcess process;
    std::unique_ptr<OutputStream> out;
    std::unique_ptr<OutputStream> err;
    bool was_told_to_end = false;  // by us, before it ended
  };

  std::vector<std::string> environment_of(int rank, int port, const std::string& run_id) const;
  bool is_anyone_running() const;
  void wait_for_event();
  void handle_signals();
  void handle_signal(int signal);
  void stop_with_ranks();
  void reap_ranks();
  void enter(Phase phase);
  void go_on_ending();
  void send_to_all(int signal);
  void kill_all();
  LaunchOutcome outcome() const;

  const LaunchPlan& plan_;
  SignalEvents& signals_;
  std::vector<Rank> ranks_;
  OutputSink out_{STDOUT_FILENO};
  OutputSink err_{STDERR_FILENO};
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
  int first_failed_ = -1;       // index into ranks_
  std::set<int> stop_signals_;  // SIGINT and the like, sent to us
};

std::vector<std::string> Launch::environment_of(int rank, int port,
                                                const std::string& run_id) const {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view pair(*entry);
    const size_t equals = std::min(pair.find('='), pair.size());
    variables.emplace(pair.substr(0, equals), pair.substr(std::min(equals + 1, pair.size())));
  }
  variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cores() / plan_.ranks)));
  for (const auto& [name, value] : plan_.environment) variables[name] = value;
  variables[kRank] = variables[kLocalRank] = std::to_string(rank);
  variables[kWorldSize] = variables[kLocalWorldSize] = std::to_string(plan_.ranks);
  variables[kRunId] = run_id;
  variables[kStartNs] = std::to_string(command_start_ns());
  variables[kMasterAddr] = "127.0.0.1";
  variables[kMasterPort] = std::to_string(port);
  variables.erase(kStoreFd);
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

Status Launch::start_ranks() {
  STRATA_ASSIGN_OR_RETURN(StoreSocket store, listen_on_free_port());
  const std::string run_id = random_id();
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    RankCommand command;
    command.rank = rank;
    command.argv = plan_.argv.empty() ? own_arguments() : plan_.argv;
    command.program = plan_.argv.empty() ? own_program() : plan_.argv[0];
    command.environment = environment_of(rank, store.port, run_id);
    command.is_captured = rank > 0;
    command.signal_mask = signals_.old_mask();
    if (rank == 0) {
      command.passed_fd = store.socket.get();
      command.environment.push_back(fmt::format("{}={}", kStoreFd, command.passed_fd));
    }
    STRATA_ASSIGN_OR_RETURN(RankProcess process, RankProcess::start(command));
    Rank& made = ranks_.emplace_back(Rank{std::move(process), nullptr, nullptr});
    if (!command.is_captured) continue;
    const std::string prefix = fmt::format("[rank {}] ", rank);
    const auto stream = [&](Descriptor& source, OutputSink& sink) {
      return std::make_unique<OutputStream>(std::move(source), prefix,
                                            plan_.all_ranks_output ? &sink : nullptr);
    };
    made.out = stream(made.process.out, out_);
    made.err = stream(made.process.err, err_);
  }
  SignalEvents::ignore_broken_pipes();
  return {};
}

LaunchOutcome Launch::run() {
  while (is_anyone_running()) {
    wait_for_event();
    handle_signals();
    reap_ranks();
    if (deadline_ && Clock::now() >= *deadline_) go_on_ending();
    if (phase_ == Phase::kKilled && !deadline_) break;  // the kernel could not end one
  }
  out_.flush(kFlushDeadline);
  err_.flush(kFlushDeadline);
  return outcome();
}

bool Launch::is_anyone_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.process.is_running(); });
}

void Launch::wait_for_event() {
  std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
  std::vector<OutputStream*> streams;
  for (Rank& rank : ranks_) {
    for (OutputStream* stream : {rank.out.get(), rank.err.get()}) {
      if (stream == nullptr || !stream->is_wanted()) continue;
      waited.push_back({stream->fd(), POLLIN, 0});
      streams.push_back(stream);
    }
  }
  for (OutputSink* sink : {&out_, &err_}) {
    if (sink->has_pending()) waited.push_back({sink->fd(), POLLOUT, 0});
  }
  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now()).count();
    timeout = static_cast<int>(std::max<int64_t>(left, 0));
  }
  if (::poll(waited.data(), waited.size(), timeout) <= 0) return;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (waited[i + 1].revents != 0) streams[i]->read_some();
  }
  out_.write_some();
  err_.write_some();
}

void Launch::handle_signals() {
  while (const std::optional<int> signal = signals_.next()) handle_signal(*signal);
}

void Launch::handle_signal(int signal) {
  switch (signal) {
    case SIGCHLD: return;
    case SIGTSTP: return stop_with_ranks();
    case SIGINT:
      if (stop_signals_.contains(SIGINT)) return enter(Phase::kKilled);
      [[fallthrough]];
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      stop_signals_.insert(signal);
      send_to_all(signal);
      return send_to_all(SIGCONT);  // a stopped process does not take the signal
    default: break;
  }
  send_to_all(signal);
}

void Launch::stop_with_ranks() {
  send_to_all(SIGSTOP);
  ::raise(SIGSTOP);
  send_to_all(SIGCONT);
}

// Takes all that have ended. Of several at once, one that a signal killed is the cause, not the
// consequence.
void Launch::reap_ranks() {
  int worst = -1;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!rank.process.reap()) continue;
    if (rank.out != nullptr) rank.out->finish();
    if (rank.err != nullptr) rank.err->finish();
    if (!rank.process.ending().is_failure() || rank.was_told_to_end) continue;
    const bool is_worse = worst < 0 || (ranks_[worst].process.ending().signal == 0 &&
                                        rank.process.ending().signal != 0);
    if (is_worse) worst = static_cast<int>(i);
  }
  if (worst >= 0 && first_failed_ < 0) {
    first_failed_ = worst;
    if (phase_ == Phase::kRunning) enter(Phase::kGrace);
  }
}

void Launch::enter(Phase phase) {
  phase_ = phase;
  switch (phase) {
    case Phase::kRunning: break;
    case Phase::kGrace: {
      const Ending& ending = ranks_[first_failed_].process.ending();
      const bool has_refused = ending.signal == 0 && ending.exit_code == plan_.user_error_code;
      deadline_ = Clock::now() + (ending.signal != 0 ? milliseconds(0)
                                  : has_refused      ? plan_.refusal_grace
                                                     : plan_.grace);
      break;
    }
    case Phase::kTerminated:
    case Phase::kKilled:
      for (Rank& rank : ranks_) rank.was_told_to_end |= rank.process.is_running();
      send_to_all(phase == Phase::kKilled ? SIGKILL : SIGTERM);
      send_to_all(SIGCONT);  // a stopped process does not take SIGTERM
      deadline_ = Clock::now() + (phase == Phase::kKilled ? kKilledDeadline : plan_.termination);
      break;
  }
}

void Launch::go_on_ending() {
  switch (phase_) {
    case Phase::kRunning: break;
    case Phase::kGrace: return enter(Phase::kTerminated);
    case Phase::kTerminated: return enter(Phase::kKilled);
    case Phase::kKilled: break;
  }
  deadline_.reset();
}

void Launch::send_to_all(int signal) {
  for (const Rank& rank : ranks_) rank.process.send(signal);
}

void Launch::kill_all() {
  if (!is_anyone_running()) return;
  enter(Phase::kKilled);
  while (is_anyone_running() && Clock::now() < *deadline_) {
    wait_for_event();
    handle_signals();
    reap_ranks();
  }
}

LaunchOutcome Launch::outcome() const {
  for (const Rank& rank : ranks_) {
    if (rank.process.is_running()) {
      return {1, fmt::format("strata: rank {} (pid {}) did not end within {} ms of SIGKILL",
                             rank.process.rank(), rank.process.pid(), kKilledDeadline.count())};
    }
  }
  if (first_failed_ < 0 && phase_ == Phase::kRunning) return {};
  if (first_failed_ < 0) return {128 + SIGINT, "strata: killed its ranks after a second SIGINT"};
  const Rank& failed = ranks_[first_failed_];
  const Ending& ending = failed.process.ending();
  const Ending& first = ranks_[0].process.ending();
  const bool has_rank_0_told = first.signal == 0 && first.exit_code == plan_.user_error_code;
  if (ending.signal == 0 && ending.exit_code == plan_.user_error_code && has_rank_0_told) {
    return {ending.code(), ""};
  }
  if (const int signal = ending.code() - 128; stop_signals_.contains(signal)) {
    return {ending.code(), fmt::format("strata: stopped by {}", signal_name(signal))};
  }
  std::string message = fmt::format("strata: rank {} (pid {}) {}", failed.process.rank(),
                                    failed.process.pid(), ending.text());
  if (plan_.ranks > 1) message += ", so the other ranks were ended";
  if (ending.signal == SIGPIPE) {
    message += ". HINT: what read its output has ended";
  } else if (ending.signal == SIGKILL) {
    message += ". HINT: if nobody did this by hand, the machine ran out of memory; see dmesg";
  }
  const std::string tail =
      failed.err == nullptr || plan_.all_ranks_output ? "" : failed.err->tail();
  if (!tail.empty()) message += "\nIts last lines:" + tail;
  return {ending.code(), message};
}

}  // namespace

Result<LaunchOutcome> launch_ranks(const LaunchPlan& plan) {
  STRATA_CHECK(plan.ranks >= 1) << plan.ranks << " ranks";
  fill_standard_descriptors();
  STRATA_ASSIGN_OR_RETURN(SignalEvents signals, SignalEvents::open());
  Launch launch(plan, signals);
  STRATA_RETURN_IF_ERROR(launch.start_ranks());
  return launch.run();
}

}  // namespace strata::launch
