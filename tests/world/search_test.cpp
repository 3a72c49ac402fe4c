// Random trainings beside one process: models, options, windows and worlds that nobody thought of.
//
//   STRATA_SEARCH_DRAWS=5000 STRATA_SEARCH_FIRST=1000 matrix_test --gtest_filter=Search.*
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tests/world/search_draw.h"

namespace strata::tests {
namespace {

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// What the host counted is at most, or exactly, what was estimated.
void expect_counters(const Draw& draw, const Trained& trained) {
  const strata_estimate_t& estimate = trained.estimate;
  const int most = *std::max_element(draw.windows.begin(), draw.windows.end());
  EXPECT_EQ(trained.at_rest.used[STRATA_TAG_PARAMETERS], estimate.param_bytes);
  if (most == 1) {
    EXPECT_EQ(trained.at_rest.used[STRATA_TAG_GRADIENTS], estimate.grad_bytes);
  }
  // Two moments.
  EXPECT_EQ(trained.at_rest.used[STRATA_TAG_OPTIMIZER],
            estimate.master_bytes + 2 * sizeof(float) * estimate.partition_numel);
  EXPECT_LE(trained.in_step.peak[STRATA_TAG_GATHERED], estimate.gathered_peak_bytes);
  if (!draw.is_set("sync_each_batch", "true")) {
    EXPECT_LE(trained.in_step.peak[STRATA_TAG_STAGING], estimate.staging_peak_bytes);
  }
  // A forward alone may leave units gathered for the one that follows.
  if (draw.windows.back() == 1 && !draw.placement.infers) {
    EXPECT_EQ(trained.sent_bytes, estimate.sent_bytes_per_step);
  }
}

void expect_draw(const Draw& draw) {
  SCOPED_TRACE(draw.text());
  const Task task = draw.task();
  const Trained expected = train_in_one_process(task, draw.placement.world, draw.order());
  const Trained trained = train_on_ranks(task, draw.placement);
  expect_same_bits(trained, expected, "beside one process");
  if (trained.error.empty()) expect_counters(draw, trained);
}

TEST(Search, FindsNoTrainingThatDiffersFromOneProcess) {
  const std::vector<Searched> strategies = searched_strategies();
  ASSERT_FALSE(strategies.empty());
  const uint64_t first = number_from("STRATA_SEARCH_FIRST", 1);
  const uint64_t draws = number_from("STRATA_SEARCH_DRAWS", 200);
  std::map<std::string, int> seen;
  for (uint64_t seed = first; seed < first + draws; ++seed) {
    const Draw drawn = draw(seed, strategies);
    ++seen[drawn.strategy];
    expect_draw(drawn);
    if (HasFatalFailure()) return;
  }
  for (const Searched& strategy : strategies) {
    EXPECT_TRUE(draws < 200 || seen[strategy.name] > 0) << strategy.name << " was never drawn";
  }
}

// A seed means one draw, whatever was drawn before it.
TEST(Search, RepeatsADrawFromItsSeed) {
  const std::vector<Searched> strategies = searched_strategies();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(draw(seed, strategies).text(), draw(seed, strategies).text());
  }
  EXPECT_NE(draw(1, strategies).text(), draw(2, strategies).text());
}

}  // namespace
}  // namespace strata::tests
