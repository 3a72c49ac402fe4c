// The host's side of the contract: one model under one strategy on one rank.
//
// A Session owns the units' storages, turns autograd's unit events into calls of the strategy,
// binds what the strategy gathers, unbinds what it releases, and hands out partitions. It knows no
// strategy by name.
//
// One step, as the trainer sees it:
//   for each micro-batch:  train_micro_batch(index, is_last, body)     forward, backward,
//   end_backward all_reduce(...)                                                    token counts,
//   norm before_step(); the optimizer updates partitions(); after_step(true)
//
// After a failing call of a step the session is broken: only abort() and destruction are legal.
#ifndef STRATA_STRATEGY_SESSION_H_
#define STRATA_STRATEGY_SESSION_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/device/host.h"
#include "strata/hooks/unit_events.h"
#include "strata/hooks/unit_graph.h"
#include "strata/hooks/unit_runner.h"
#include "strata/model/partition.h"
#include "strata/model/unit_spec.h"
#include "strata/model/unit_storage.h"
#include "strata/plugin/strategy_instance.h"

namespace strata::strategy {

class Session final : public hooks::UnitEvents {
 public:
  // Asks the strategy for layouts, makes unbound storages, attaches. Storages have the compute
  // dtypes of `spec`. [collective] `host` outlives the session.
  static Result<std::unique_ptr<Session>> attach(plugin::StrategyInstance strategy,
                                                 device::Host& host, model::ModelSpec spec);
  ~Session() override;  // communicates with nobody

  // ---- whole units, one at a time. [collective]: every rank, the same units in the same order
  // ----

  // fp32 tensors of one unit's parameters, in the order of the spec; valid inside the callback
  // only.
  using UnitVisitor = std::function<Status(int unit, std::span<const at::Tensor> parameters)>;
  // Every rank writes the same values into all parameters of all units.
  Status write_units(const UnitVisitor& write);
  Status write_unit(int unit, const UnitVisitor& write);
  Status read_units(const UnitVisitor& read);
  Status read_unit(int unit, const UnitVisitor& read);

  // ---- steps ----

  // Runs `body` (a forward that returns the SUM of the losses of this micro-batch) and its
  // backward. With `is_last` the partitions then hold the gradients of the whole window, reduced
  // over all ranks. [collective]
  using LossBody = std::function<at::Tensor(hooks::UnitRunner& runner)>;
  Status train_micro_batch(int index, bool is_last, const LossBody& body);
  // Runs one forward without backward. [collective]
  using InferenceBody = std::function<void(hooks::UnitRunner& runner)>;
  Status infer(const InferenceBody& body);

  const std::vector<model::Partition>& partitions() const { return partitions_; }
  Status before_step();
  Status after_step(bool updated);

  // Over all ranks, in rank order: every rank gets the same bits. [collective]
  Status all_reduce(std::span<double> values, int32_t op = STRATA_REDUCE_SUM);
  Status all_reduce(std::span<int64_t> values, int32_t op = STRATA_REDUCE_SUM);

  // Waits until nothing is running, then gives the memory back. [local]
  Status detach();
  // Any thread. Blocked collectives return within one second.
  void abort(const std::string& reason);

  // Activation checkpointing: the entries of these units keep their input only. Empty: none.
  void set_recompute(std::function<bool(int unit)> is_recomputed);

  const model::ModelSpec& spec() const { return spec_; }
  std::vector<model::UnitStorage*> units() const;

  // ---- hooks::UnitEvents ----
  void before_forward(int unit, hooks::Phase phase, int next_unit) override;
  void before_backward(int unit, int next_unit) override;
  void after_forward(int unit, hooks::Phase phase, int next_unit,
                     bool backward_begins_here) override;
  hooks::GradientTarget gradient_target(int unit) override;
  void after_backward(int unit, int next_unit, std::span<const int> missing) override;

 private:
  Session(plugin::StrategyInstance strategy, device::Host& host, model::ModelSpec spec);
  Status lay_out_and_attach();
  Status read_partitions();
  Status visit_unit(int unit, int32_t intent, const UnitVisitor& visit);
  Status all_reduce_raw(void* values, size_t count, int32_t dtype, int32_t op);
  strata_unit_context_t context(int unit, int32_t phase, int next_unit) const;
  void bind(int unit, const strata_unit_view_t& view);
  void apply_residency(int unit, int32_t residency);
  Status run_guarded(const std::function<void()>& body);

  plugin::StrategyInstance strategy_;
  device::Host& host_;
  model::ModelSpec spec_;
  std::vector<std::unique_ptr<model::UnitStorage>> units_;
  std::unique_ptr<hooks::UnitGraph> graph_;
  std::vector<model::Partition> partitions_;
  strata_stream_t compute_ = nullptr;
  int micro_batch_ = 0;
  bool is_last_ = true;
  bool is_attached_ = false;
};

}  // namespace strata::strategy

#endif  // STRATA_STRATEGY_SESSION_H_
