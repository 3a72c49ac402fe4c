// Optimizers over a small unit whose flat memory is cut at will, on as many ranks as there are
// pieces.
#ifndef STRATA_TESTS_UNIT_OPTIM_FIXTURE_H_
#define STRATA_TESTS_UNIT_OPTIM_FIXTURE_H_

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/abi/types.h"
#include "strata/optim/registry.h"

namespace strata::optim {

// Random cuts of [0, blocks * 64) at multiples of 64.
inline std::vector<int64_t> random_cuts(int64_t blocks, int pieces, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, blocks * 64};
  for (int i = 1; i < pieces; ++i) {
    cuts.push_back(std::uniform_int_distribution<int64_t>(0, blocks)(random) * 64);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

inline model::Partition slice(std::vector<float>& gradient, int64_t begin, int64_t end) {
  model::Partition partition;
  partition.offset = begin;
  partition.numel = end - begin;
  partition.gradient = gradient.data() + begin;
  return partition;
}

// Sums of several ranks, each a thread that calls in the same order.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(ranks) {}

  template <typename Value, typename Combine>
  void combine(std::span<Value> values, std::vector<Value>& shared, Combine combine) {
    {
      const std::lock_guard lock(mutex_);
      if (shared.empty()) {
        shared.assign(values.begin(), values.end());
      } else {
        for (size_t i = 0; i < shared.size(); ++i) shared[i] = combine(shared[i], values[i]);
      }
    }
    barrier_.arrive_and_wait();
    std::copy(shared.begin(), shared.end(), values.begin());
    barrier_.arrive_and_wait();
    {
      const std::lock_guard lock(mutex_);
      shared.clear();
    }
    barrier_.arrive_and_wait();
  }

  std::vector<int64_t> sums;
  std::vector<double> largest;

 private:
  std::mutex mutex_;
  std::barrier<> barrier_;
};

class MeetingReducer final : public Reducer {
 public:
  explicit MeetingReducer(Meeting& meeting) : meeting_(meeting) {}
  Status sum(std::span<int64_t> values) override {
    meeting_.combine(values, meeting_.sums, [](int64_t a, int64_t b) { return a + b; });
    return {};
  }
  Status max(std::span<double> values) override {
    meeting_.combine(values, meeting_.largest, [](double a, double b) { return std::max(a, b); });
    return {};
  }

 private:
  Meeting& meeting_;
};

inline Result<StateMemory> allocate_state(int64_t numel) {
  return StateMemory(new float[static_cast<size_t>(numel)](), std::default_delete<float[]>());
}

// One unit with weights, a bias, a frozen weight, a weight that is no multiple of 64, one of three
// dimensions, a scalar and an empty one.
struct TestUnit {
  // `more` are put behind them.
  explicit TestUnit(const std::vector<model::ParameterSpec>& more = {}) {
    spec.units = {{"u",
                   {{"w", {10, 20}},
                    {"b", {70}},
                    {"f", {5, 5}, false},
                    {"v", {3, 50}},
                    {"c", {2, 6, 11}},
                    {"s", {}},
                    {"e", {0, 4}}}}};
    spec.order = {0};
    std::ranges::copy(more, std::back_inserter(spec.units[0].parameters));
    layouts = {model::make_flat_layout(spec.units[0], 64, 64)};
    numel = layouts[0].numel;
  }

  // Numbers of a normal distribution in all parameters, zero in between.
  void fill(std::vector<float>& out, std::mt19937& random) const {
    std::normal_distribution<float> normal;
    for (size_t p = 0; p < spec.units[0].parameters.size(); ++p) {
      for (int64_t i = 0; i < spec.units[0].parameters[p].numel(); ++i) {
        out[static_cast<size_t>(layouts[0].offsets[p] + i)] = normal(random);
      }
    }
  }

  model::ModelSpec spec;
  std::vector<model::FlatLayout> layouts;
  int64_t numel = 0;
};

// `values` in a 16-bit dtype, rounded.
inline std::vector<uint16_t> to_16_bits(std::span<const float> values, int32_t dtype) {
  std::vector<uint16_t> out;
  for (const float value : values) {
    out.push_back(dtype == STRATA_DTYPE_BF16 ? c10::BFloat16(value).x : c10::Half(value).x);
  }
  return out;
}

inline std::vector<float> from_16_bits(std::span<const uint16_t> values, int32_t dtype) {
  std::vector<float> out;
  for (const uint16_t bits : values) {
    out.push_back(dtype == STRATA_DTYPE_BF16
                      ? static_cast<float>(c10::BFloat16(bits, c10::BFloat16::from_bits()))
                      : static_cast<float>(c10::Half(bits, c10::Half::from_bits())));
  }
  return out;
}

struct Recipe {
  OptimizerOptions options;
  double weight_decay = 0.1;
  std::vector<GroupRule> rules;
  double learning_rate = 0.01;
  GradientScale scale{.factor = 0.125};
  int steps = 5;
  int threads = 1;                    // of each rank
  int32_t values = STRATA_DTYPE_F32;  // to which gradients are rounded
  int32_t dtype = STRATA_DTYPE_F32;   // in which they are stored: fp32 or that of `values`
};

// What is left after training: masters, and states in the coordinates of their kind.
struct Trained {
  std::vector<float> masters;
  std::map<std::string, std::vector<float>> states;
  bool operator==(const Trained&) const = default;
};

// The gradients of each step are seeded; ranks own [cuts[r], cuts[r + 1]), or with `replicas` each
// of them owns all.
inline Trained train(const TestUnit& unit, const std::vector<int64_t>& cuts, const Recipe& recipe,
                     int replicas = 1) {
  Trained out;
  out.masters.assign(static_cast<size_t>(unit.numel), 0.0F);
  std::mt19937 random(5);
  unit.fill(out.masters, random);
  std::vector<std::vector<float>> gradients(static_cast<size_t>(recipe.steps));
  for (auto& gradient : gradients) {
    gradient.assign(out.masters.size(), 0.0F);
    unit.fill(gradient, random);
    // Frozen weights get no gradient.
    for (int64_t i = 0; i < 25; ++i) {
      gradient[static_cast<size_t>(unit.layouts[0].offsets[2] + i)] = 0;
    }
    if (recipe.values != STRATA_DTYPE_F32) {
      gradient = from_16_bits(to_16_bits(gradient, recipe.values), recipe.values);
    }
  }
  const auto groups = assign_groups(unit.spec, recipe.rules, recipe.weight_decay).value();
  const int ranks = replicas > 1 ? replicas : static_cast<int>(cuts.size()) - 1;
  Meeting meeting(ranks);
  std::mutex mutex;
  const auto rank_body = [&](int rank) {
    at::set_num_threads(recipe.threads);
    std::vector<float> masters = out.masters;
    std::vector<float> gradient(masters.size());
    std::vector<uint16_t> short_gradient(masters.size());
    const size_t at = replicas > 1 ? 0 : static_cast<size_t>(rank);
    model::Partition partition = slice(gradient, cuts[at], cuts[at + 1]);
    partition.master = masters.data() + cuts[at];
    partition.replicas = replicas;
    partition.replica = replicas > 1 ? rank : 0;
    partition.gradient_dtype = recipe.dtype;
    if (recipe.dtype != STRATA_DTYPE_F32) partition.gradient = short_gradient.data() + cuts[at];
    const std::vector<model::Partition> partitions = {partition};
    auto optimizer = make_optimizer(recipe.options,
                                    {unit.spec, unit.layouts, partitions, groups, allocate_state})
                         .value();
    MeetingReducer reducer(meeting);
    EXPECT_TRUE(check_partitions(recipe.options, "cut",
                                 {unit.spec, unit.layouts, partitions, groups, nullptr}, reducer)
                    .ok());
    meeting.combine(std::span<int64_t>(), meeting.sums, [](int64_t a, int64_t) { return a; });
    for (int step = 0; step < recipe.steps; ++step) {
      // Into the same memory.
      const std::vector<float>& values = gradients[static_cast<size_t>(step)];
      std::copy(values.begin(), values.end(), gradient.begin());
      if (recipe.dtype != STRATA_DTYPE_F32) {
        const std::vector<uint16_t> bits = to_16_bits(values, recipe.dtype);
        std::copy(bits.begin(), bits.end(), short_gradient.begin());
      }
      const Status done = optimizer->step(recipe.learning_rate, recipe.scale, reducer);
      EXPECT_TRUE(done.ok()) << done.message();
    }
    const std::lock_guard lock(mutex);
    std::copy(masters.begin() + cuts[at], masters.begin() + cuts[at + 1],
              out.masters.begin() + cuts[at]);
    for (const StateTensor& state : optimizer->states()) {
      std::vector<float>& all = out.states[state.kind];
      if (all.empty()) all.assign(static_cast<size_t>(unit.numel), 0.0F);
      std::copy(state.data, state.data + state.numel, all.begin() + state.offset);
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(rank_body, rank);
  threads.clear();
  return out;
}

}  // namespace strata::optim

#endif  // STRATA_TESTS_UNIT_OPTIM_FIXTURE_H_
