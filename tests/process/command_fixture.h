// A small language for tests of the command: a folder with a tiny model and a text, `strata` run in
// it as a process, and what it left behind.
#ifndef STRATA_TESTS_PROCESS_COMMAND_FIXTURE_H_
#define STRATA_TESTS_PROCESS_COMMAND_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace strata::tests {

using Args = std::vector<std::string>;

struct Ended {
  int exit_code = -1;  // 128 + N if a signal ended it
  std::string out;
  std::string err;
};

// A command that runs. With a launcher in front: {"mpirun", "-np", "2"}.
class Running {
 public:
  Running(const std::string& folder, const Args& args,
          const std::map<std::string, std::string>& environment = {}, const Args& launcher = {});
  ~Running();  // ends it
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  std::vector<pid_t> children() const;
  // Waits for its end; fails the test after 60 s.
  Ended wait();

 private:
  std::string name_;  // of the files of its output
  pid_t pid_ = -1;
};

class CommandTest : public ::testing::Test {
 protected:
  CommandTest();
  ~CommandTest() override;

  Ended run(const Args& args, const std::map<std::string, std::string>& environment = {}) const {
    return Running(folder_, args, environment).wait();
  }
  // The flags of a short training, with more of them behind. Later ones win.
  Args train(const std::string& output_dir, const Args& more = {}) const;
  // As run(), and must succeed.
  Ended succeed(const Args& args) const;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const;
  bool exists(const std::string& name) const;
  nlohmann::json json(const std::string& name) const;
  std::vector<nlohmann::json> lines(const std::string& name) const;
  // The tiny model's configuration.
  nlohmann::json config() const { return config_; }
  // "one two three ..." of a small vocabulary, with some order in it.
  static std::string text(int lines);

  std::string folder_;

 private:
  nlohmann::json config_;
};

}  // namespace strata::tests

#endif  // STRATA_TESTS_PROCESS_COMMAND_FIXTURE_H_
