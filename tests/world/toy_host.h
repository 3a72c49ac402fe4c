// A host without LibTorch: walks the slots of a strategy in the order of the contract, computes toy
// gradients from what it was handed, and holds every weight that it sees against the reference.
#ifndef STRATA_TESTS_WORLD_TOY_HOST_H_
#define STRATA_TESTS_WORLD_TOY_HOST_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "strata/plugin/strategy_instance.h"
#include "tests/world/ranks.h"
#include "tests/world/toy_model.h"

namespace strata::tests {

// How passes are run.
struct ToyPasses {
  // The hint that is given instead of the right one. Empty: the right one.
  std::function<uint32_t(uint32_t right, uint32_t call)> hint;
  std::set<uint32_t> recomputed;
  // A partition is updated as soon as its gradient is said to be final, before end_backward.
  bool updates_early = false;
  uint32_t inferences = 0;  // forwards without backward in front of each step
};

class ToyHost {
 public:
  // `reference` has the weights that the host expects. All but `rank` outlive this object.
  ToyHost(RankOfTest& rank, const plugin::ResolvedStrategy& strategy, const ToyModel& model,
          const ToyTraining& training, const std::vector<Weights>& reference,
          bool is_checked = true);

  Status create();
  Status attach();
  // Writes the initial weights, one unit after the other.
  Status initialise();
  // One window of micro-batches and its update.
  Status step(uint32_t step, const ToyPasses& passes = {});
  // The parts of step().
  Status micro_batch(uint32_t step, uint32_t micro_batch, const ToyPasses& passes);
  Status forward(int32_t phase, uint32_t step, uint32_t micro_batch, const ToyPasses& passes);
  Status backward(uint32_t step, uint32_t micro_batch, const ToyPasses& passes);
  Status update();
  Status infer(uint32_t step, const ToyPasses& passes = {});
  // Reads all units through open_unit and expects the reference's weights of that step, in fp32.
  Status read_back(uint32_t step);
  Status detach();

  // From now on weights may be wrong: what failed is told behind the call that began it.
  void expect_failure() { expects_weights_ = false; }

  plugin::StrategyInstance& strategy() { return *strategy_; }
  void destroy() { strategy_.reset(); }
  device::Host& host() { return *rank_.host; }
  const std::vector<strata_partition_t>& partitions() const { return partitions_; }
  // By partition, in fp32, as they were behind end_backward.
  const std::vector<std::vector<float>>& gradients() const { return gradients_; }
  ToyDescription& description() { return description_; }

 private:
  strata_unit_context_t context(uint32_t unit, int32_t phase, uint32_t micro_batch,
                                uint32_t next_unit, const ToyPasses& passes);
  uint32_t next_in_forward(uint32_t entry) const;
  uint32_t next_in_backward(uint32_t entry) const;
  Status take_view(uint32_t unit, const strata_unit_view_t& view, uint32_t step);
  Status open_backward(uint32_t unit, uint32_t step, uint32_t micro_batch, uint32_t next,
                       const ToyPasses& passes);
  Status close_backward(uint32_t unit, uint32_t step, uint32_t micro_batch, uint32_t next,
                        const ToyPasses& passes);
  // Expects the reference's weights, rounded to `dtype`.
  void expect_weights(uint32_t unit, const void* data, int32_t dtype, uint32_t step,
                      const char* where) const;
  // The same of what was handed out last, and zeros in its padding.
  void expect_view(uint32_t unit, uint32_t step, const char* where) const;
  void write_gradient(uint32_t unit, const Moment& moment, int part);
  void read_gradients();
  void update_partition(const strata_partition_t& partition, const std::vector<float>& gradient);
  bool is_missing(const Moment& moment, uint32_t unit, uint32_t parameter) const;
  Moment moment(uint32_t step, uint32_t micro_batch) const;

  RankOfTest& rank_;
  plugin::ResolvedStrategy resolved_;
  const ToyModel& model_;
  const ToyTraining& training_;
  const std::vector<Weights>& reference_;
  const bool is_checked_;
  ToyDescription description_;
  std::unique_ptr<plugin::StrategyInstance> strategy_;
  std::vector<strata_partition_t> partitions_;
  std::vector<std::vector<float>> gradients_;
  std::vector<bool> is_updated_;  // by partition: early, in this step
  struct Unit {
    const void* view = nullptr;
    void* target = nullptr;
    bool is_adding = false;
  };
  std::vector<Unit> units_;
  uint32_t calls_ = 0;
  bool expects_weights_ = true;
};

// Trains on ranks as threads and expects the reference's weights everywhere, all the way.
void expect_training(const std::string& strategy, const ToyModel& model,
                     const ToyTraining& training, const ToyPasses& passes = {});
// The same of each of the strategies.
void expect_trainings(const std::vector<std::string>& strategies, const ToyModel& model,
                      const ToyTraining& training, const ToyPasses& passes = {});

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_TOY_HOST_H_
