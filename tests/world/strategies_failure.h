// What goes wrong on one rank is told on all, in words: the strategies and models of these tests.
#ifndef STRATA_TESTS_WORLD_STRATEGIES_FAILURE_H_
#define STRATA_TESTS_WORLD_STRATEGIES_FAILURE_H_

#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "tests/world/toy_host.h"

namespace strata::tests {

constexpr std::chrono::seconds kPatience(30);
// What "within one second" may take on a machine that runs other tests.
constexpr std::chrono::milliseconds kSecond(3000);

// Something that one thread waits for and another says.
class Signal {
 public:
  void give() {
    const std::lock_guard lock(mutex_);
    is_given_ = true;
    changed_.notify_all();
  }
  bool await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return is_given_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_given_ = false;
};

inline ToyTraining of_world(uint32_t world) {
  ToyTraining training;
  training.world = world;
  return training;
}

struct FailingStrategy {
  const char* strategy;
  bool has_16_bits = false;  // dtypes that differ from unit to unit
};

inline void PrintTo(const FailingStrategy& one, std::ostream* out) { *out << one.strategy; }

class StrategyFailures : public ::testing::TestWithParam<FailingStrategy> {
 protected:
  StrategyFailures()
      : model_(GetParam().has_16_bits ? with_mixed_dtypes(chain_model(), 0) : chain_model()),
        resolved_(find_strategy(GetParam().strategy)),
        reference_(train_reference(model_, training_)) {}

  std::unique_ptr<ToyHost> make_host(RankOfTest& rank, const ToyModel& model) {
    return std::make_unique<ToyHost>(rank, resolved_, model, training_, reference_);
  }
  std::unique_ptr<ToyHost> make_host(RankOfTest& rank) { return make_host(rank, model_); }

  // Trains a step, to see that all is well.
  void expect_works(ToyHost& host) {
    const auto run = [&]() -> Status {
      STRATA_RETURN_IF_ERROR(host.initialise());
      STRATA_RETURN_IF_ERROR(host.step(0));
      STRATA_RETURN_IF_ERROR(host.read_back(1));
      return host.detach();
    };
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  Signal is_over_;
  ToyTraining training_ = of_world(2);
  ToyModel model_;
  plugin::ResolvedStrategy resolved_;
  std::vector<Weights> reference_;
};

// All of them, under names that gtest takes.
inline auto failing_strategies() {
  return ::testing::Values(FailingStrategy{"ddp"}, FailingStrategy{"ddp", true},
                           FailingStrategy{"fsdp"}, FailingStrategy{"fsdp", true},
                           FailingStrategy{"fsdp:overlap_comm=false"}, FailingStrategy{"zero1"},
                           FailingStrategy{"zero1", true}, FailingStrategy{"zero2"},
                           FailingStrategy{"zero2", true}, FailingStrategy{"zero3"},
                           FailingStrategy{"hsdp:shard_group_size=1"});
}

inline std::string name_of(const ::testing::TestParamInfo<FailingStrategy>& info) {
  std::string name = info.param.strategy;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name + (info.param.has_16_bits ? "_in_16_bits" : "");
}

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_STRATEGIES_FAILURE_H_
