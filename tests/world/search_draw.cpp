#include "tests/world/search_draw.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "strata/zoo/head_loss.h"
#include "tests/world/ranks.h"
#include "tests/world/tasks.h"

namespace strata::tests {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  // In [0, count).
  uint64_t below(uint64_t count) { return random_() % count; }
  bool one_in(uint64_t count) { return below(count) == 0; }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 random_;  // the same numbers with every library
};

std::vector<int64_t> draw_shape(Dice& dice) {
  static const std::vector<int64_t> primes = {2, 3, 5, 7, 13, 31, 61, 67, 127, 257, 997};
  const auto prime = [&](int64_t most) {
    int64_t value = dice.one_of(primes);
    while (value > most) value = dice.one_of(primes);
    return value;
  };
  switch (dice.below(10)) {
    case 0: return {};
    case 1: return dice.one_in(2) ? std::vector<int64_t>{0} : std::vector<int64_t>{3, 0, 2};
    case 2: return dice.one_in(2) ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 1};
    case 3: return {64 * static_cast<int64_t>(1 + dice.below(8))};
    case 4: return {prime(61), prime(61)};
    case 5: return {2, prime(13), prime(31)};
    case 6: return {3000 + static_cast<int64_t>(dice.below(2000))};
    default: return {prime(997)};
  }
}

OddShape draw_model(Dice& dice) {
  OddShape shape;
  const bool is_plain = dice.one_in(4);  // nothing frozen, nothing unused
  const bool is_frozen = dice.one_in(40);
  const uint64_t count = 1 + dice.below(6);
  for (uint64_t u = 0; u < count; ++u) {
    std::vector<OddParameter> unit(dice.one_in(10) ? 0 : 1 + dice.below(4));
    const bool is_unit_frozen = is_frozen || (!is_plain && dice.one_in(6));
    for (OddParameter& parameter : unit) {
      parameter.shape = draw_shape(dice);
      parameter.is_trainable = !is_unit_frozen && (is_plain || !dice.one_in(8));
      if (!is_plain && dice.one_in(6)) parameter.use = Use::kSometimes;
      if (!is_plain && dice.one_in(10)) parameter.use = Use::kNever;
    }
    shape.units.push_back(std::move(unit));
    shape.order.push_back(static_cast<int>(u));
  }
  for (size_t i = count; i > 1 && dice.one_in(2); --i) {  // units need not come in order
    std::swap(shape.order[i - 1], shape.order[dice.below(i)]);
  }
  for (uint64_t ties = dice.one_in(2) ? 1 + dice.below(3) : 0; ties > 0; --ties) {
    const auto unit = static_cast<int>(dice.below(count));
    const auto at = static_cast<std::ptrdiff_t>(dice.below(shape.order.size() + 1));
    shape.order.insert(shape.order.begin() + at, unit);
  }
  return shape;
}

// What an option is tried with. A new option comes here before its strategy is searched.
std::vector<std::string> values_of(const std::string& key, int world) {
  static const std::map<std::string, std::vector<std::string>> values = {
      {"backward_prefetch", {"backward_pre", "backward_post", "none"}},
      {"bucket_cap_mb", {"0", "0.0001", "0.001", "0.01", "25"}},
      {"deterministic", {"true", "false"}},
      {"first_bucket_cap_mb", {"0", "0.001", "1"}},
      {"forward_prefetch", {"true", "false"}},
      {"limit_all_gathers", {"1", "2", "3", "64"}},
      {"overlap_comm", {"true", "false"}},
      {"prefetch", {"true", "false"}},
      {"reshard_after_forward", {"true", "false"}},
      {"sync_each_batch", {"true", "false"}},
  };
  if (key == "shard_group_size") {
    std::vector<std::string> divisors = {"0"};
    for (int size = 1; size <= world; ++size) {
      if (world % size == 0) divisors.push_back(std::to_string(size));
    }
    return divisors;
  }
  const auto found = values.find(key);
  if (found != values.end()) return found->second;
  ADD_FAILURE() << "option '" << key << "' is searched with no value: name some in values_of()";
  return {};
}

void draw_strategy(Dice& dice, const std::vector<Searched>& strategies, Draw& out) {
  static const std::vector<int> worlds = {1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8};
  out.placement.world = dice.one_of(worlds);
  const Searched* strategy = &dice.one_of(strategies);
  while (strategy->name == "single" && out.placement.world > 1) {
    strategy = &dice.one_of(strategies);
  }
  out.strategy = strategy->name;
  for (const std::string& key : strategy->keys) {
    const std::vector<std::string> values = values_of(key, out.placement.world);
    if (!values.empty() && dice.one_in(2)) out.options[key] = dice.one_of(values);
  }
  std::vector<std::string> pairs;
  for (const auto& [key, value] : out.options) pairs.push_back(key + "=" + value);
  out.placement.strategy =
      out.strategy + (pairs.empty() ? "" : fmt::format(":{}", fmt::join(pairs, ",")));
  out.placement.recomputes = dice.one_in(2);
  out.placement.is_checked = dice.one_in(3);
  out.placement.infers = dice.one_in(3);
}

// One set for all units, or one each; fp32 half of the time.
std::vector<model::UnitDtypes> draw_dtypes(Dice& dice, size_t units) {
  static const std::vector<int32_t> dtypes = {STRATA_DTYPE_F32, STRATA_DTYPE_BF16,
                                              STRATA_DTYPE_F16};
  if (dice.one_in(2)) return std::vector<model::UnitDtypes>(units);
  std::vector<model::UnitDtypes> drawn;
  const bool is_one_set = dice.one_in(2);
  for (size_t u = 0; u < units; ++u) {
    model::UnitDtypes one;
    one.compute = dice.one_of(dtypes);
    one.reduce = dice.one_of(dtypes);
    drawn.push_back(is_one_set && u > 0 ? drawn[0] : one);
  }
  return drawn;
}

std::string dtypes_text(const std::vector<model::UnitDtypes>& dtypes) {
  const char* const names[] = {"none", "f32", "bf16", "f16"};
  std::string out;
  for (const model::UnitDtypes& of_unit : dtypes) {
    out += fmt::format(" {}/{}/{}", names[of_unit.compute], names[of_unit.reduce],
                       names[of_unit.accumulate]);
  }
  return out;
}

// Sequences of unequal length, some labels missing, in unequal numbers.
zoo::Batch draw_batch(uint64_t seed, const BatchPlace& place) {
  const uint64_t number =
      (static_cast<uint64_t>(place.step) * 64 + static_cast<uint64_t>(place.rank)) * 64 +
      static_cast<uint64_t>(place.micro);
  Dice dice(seed * 1000003 + number);
  const auto rows = static_cast<int64_t>(1 + dice.below(3));
  const auto length = static_cast<int64_t>(1 + dice.below(4));
  zoo::Batch batch;
  batch.input_ids = random_ids(dice.below(1U << 30), rows, length, 64);
  batch.labels = batch.input_ids.clone();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  const bool has_none = dice.one_in(8);
  for (int64_t i = 0; i < batch.labels.numel(); ++i) {
    if (has_none || dice.one_in(4)) labels[i] = zoo::kNoLabel;
  }
  // Every window has a label token.
  if (place.rank == 0 && place.micro == 0) labels[0] = 1;
  return batch;
}

}  // namespace

std::vector<Searched> searched_strategies() {
  plugin::PluginRegistry registry(test_offer(), {{STRATA_PLUGIN_DIR, "this build"}});
  std::vector<Searched> all;
  for (const plugin::FoundPlugin& found : registry.list()) {
    if (found.library == nullptr) {
      ADD_FAILURE() << found.file << ": " << found.status.message();
      continue;
    }
    for (const std::string& name : found.library->strategies()) {
      Searched searched{name, {}};
      const auto options = found.library->options(name);
      EXPECT_TRUE(options.ok()) << options.status().message();
      for (const plugin::OptionDescription& option : *options) searched.keys.push_back(option.key);
      all.push_back(std::move(searched));
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Searched& a, const Searched& b) { return a.name < b.name; });
  return all;
}

bool Draw::is_set(const std::string& key, const std::string& value) const {
  const auto at = options.find(key);
  return at != options.end() && at->second == value;
}

int Draw::shard_group_size() const {
  const auto at = options.find("shard_group_size");
  return at == options.end() || at->second == "0" ? placement.world : std::stoi(at->second);
}

SumOrder Draw::order() const {
  SumOrder order;
  // A unit that is whole on each rank gathers its micro-batches first.
  order.adds_ranks_first = is_set("sync_each_batch", "true") && shard_group_size() > 1;
  if (is_set("deterministic", "false")) order.group = shard_group_size();
  order.adds_each_entry = placement.recomputes;
  return order;
}

Task Draw::task() const {
  Task task;
  task.make_model = [shape = shape] { return std::make_unique<OddModel>(shape); };
  task.batch = [seed = seed](const BatchPlace& place) { return draw_batch(seed, place); };
  task.windows = windows;
  task.dtypes = [dtypes = dtypes](int unit) { return dtypes[static_cast<size_t>(unit)]; };
  task.max_grad_norm = max_grad_norm;
  task.seed = seed;
  return task;
}

std::string Draw::text() const {
  return fmt::format(
      "draw {}: {} on {} ranks; windows {}; max_grad_norm {}{}{}{}; {}; dtypes{}\n"
      "Again: STRATA_SEARCH_FIRST={} STRATA_SEARCH_DRAWS=1 matrix_test --gtest_filter=Search.*",
      seed, placement.strategy, placement.world, fmt::join(windows, " "), max_grad_norm,
      placement.recomputes ? "; checkpointed" : "", placement.is_checked ? "; checked" : "",
      placement.infers ? "; a forward alone in front of each step" : "", shape.text(),
      dtypes_text(dtypes), seed);
}

Draw draw(uint64_t seed, const std::vector<Searched>& strategies) {
  Dice dice(seed);
  Draw out;
  out.seed = seed;
  draw_strategy(dice, strategies, out);
  out.shape = draw_model(dice);
  out.dtypes = draw_dtypes(dice, out.shape.units.size());
  for (uint64_t steps = 2 + dice.below(2); steps > 0; --steps) {
    out.windows.push_back(dice.one_in(2) ? 1 : 1 + static_cast<int>(dice.below(3)));
  }
  static const std::vector<double> norms = {0, 1e-3, 1e6};
  out.max_grad_norm = dice.one_of(norms);
  return out;
}

}  // namespace strata::tests
