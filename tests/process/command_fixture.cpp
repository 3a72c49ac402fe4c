#include "tests/process/command_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeadline{60};

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

Running::Running(const std::string& folder, const Args& args,
                 const std::map<std::string, std::string>& environment, const Args& launcher) {
  static std::atomic<int> count{0};
  name_ = folder + "/.command-" + std::to_string(count++);
  std::vector<std::string> argv = launcher;
  argv.push_back(std::string(STRATA_BINARY_DIR) + "/bin/strata");
  argv.insert(argv.end(), args.begin(), args.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    variables.emplace_back(*inherited);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (name_ + ".out").c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (name_ + ".err").c_str(), flags, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  const int failed = posix_spawnp(&pid_, argv[0].c_str(), &actions, nullptr, pointers(argv).data(),
                                  pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    ADD_FAILURE() << "cannot start " << argv[0];
    pid_ = -1;
  }
}

Running::~Running() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> Running::children() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                     "/children");
  std::vector<pid_t> out;
  for (pid_t child = 0; file >> child;) out.push_back(child);
  return out;
}

Ended Running::wait() {
  Ended ended;
  if (pid_ <= 0) return ended;
  const Clock::time_point deadline = Clock::now() + kDeadline;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "the command did not end within 60 s:\n"
                    << read_all(name_ + ".out") << read_all(name_ + ".err");
      return ended;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
  }
  pid_ = -1;
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.out = read_all(name_ + ".out");
  ended.err = read_all(name_ + ".err");
  return ended;
}

CommandTest::CommandTest() {
  std::string name = (fs::temp_directory_path() / "strata_command_XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  folder_ = name;
  config_ = {{"model_type", "gpt2"}, {"vocab_size", 300},  {"n_positions", 32},
             {"n_embd", 32},         {"n_layer", 2},       {"n_head", 2},
             {"resid_pdrop", 0.1},   {"embd_pdrop", 0.1},  {"attn_pdrop", 0.1},
             {"bos_token_id", 299},  {"eos_token_id", 299}};
  write("tiny.json", config_.dump());
  write("text.txt", text(400));
}

CommandTest::~CommandTest() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

std::string CommandTest::text(int lines) {
  static const char* const kWords[] = {"the",  "and",  "light", "water", "earth", "was",
                                       "said", "good", "day",   "night", "of",    "heaven"};
  std::minstd_rand random(7);
  std::string out;
  for (int line = 0; line < lines; ++line) {
    size_t word = random() % 12;
    for (int i = 0; i < 9; ++i) {
      out += std::string(kWords[word]) + (i < 8 ? " " : ".\n");
      word = (word + 1 + random() % 3) % 12;
    }
  }
  return out;
}

Args CommandTest::train(const std::string& output_dir, const Args& more) const {
  std::vector<std::pair<std::string, std::string>> flags = {
      {"--model", "tiny.json"},    {"--data", "text.txt"},
      {"--sequence-length", "16"}, {"--per-device-train-batch-size", "2"},
      {"--max-steps", "6"},        {"--learning-rate", "1e-3"},
      {"--logging-steps", "1"},    {"--output-dir", output_dir}};
  Args out = {"train", "--no-progress"};
  for (const auto& [flag, value] : flags) {
    if (std::find(more.begin(), more.end(), flag) == more.end()) {
      out.insert(out.end(), {flag, value});
    }
  }
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

Ended CommandTest::succeed(const Args& args) const {
  Ended ended = run(args);
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  return ended;
}

void CommandTest::write(const std::string& name, const std::string& content) const {
  std::ofstream(path(name)) << content;
}

bool CommandTest::exists(const std::string& name) const { return fs::exists(path(name)); }

nlohmann::json CommandTest::json(const std::string& name) const {
  const auto value = nlohmann::json::parse(read_all(path(name)), nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << name;
  return value;
}

std::vector<nlohmann::json> CommandTest::lines(const std::string& name) const {
  std::ifstream file(path(name));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace strata::tests
