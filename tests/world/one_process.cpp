// The plain loop of trained.h: no strategy, no session, no partition.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "strata/formats/hash.h"
#include "strata/optim/clipping.h"
#include "strata/optim/registry.h"
#include "tests/world/trained.h"

namespace strata::tests {
namespace {

at::ScalarType to_torch(int32_t dtype) {
  return dtype == STRATA_DTYPE_BF16  ? at::kBFloat16
         : dtype == STRATA_DTYPE_F16 ? at::kHalf
                                     : at::kFloat;
}

// Gradients of one micro-batch, or sums of them: by parameter, undefined where there is none.
using Gradients = std::vector<at::Tensor>;

// Keeps the inputs of entries only, and computes again in backward: activation checkpointing
// without hooks.
class RecomputingLoop final : public hooks::UnitRunner {
 public:
  at::Tensor enter(int, const at::Tensor& input, const Body& body) override {
    entries_.push_back({input, body});
    const c10::AutoGradMode gradients_off(false);
    return body(input);
  }

  // Backward of the last entry's output, which is the loss. Every entry hands over gradients.
  void backward(const std::vector<at::Tensor>& parameters,
                const std::function<void(const std::vector<at::Tensor>&)>& take) {
    at::Tensor gradient = at::ones({});
    for (size_t i = entries_.size(); i-- > 0 && gradient.defined();) {
      at::Tensor input = entries_[i].input.detach();
      if (i > 0) input.requires_grad_();
      const at::Tensor output = entries_[i].body(input);
      if (!output.requires_grad()) return;
      std::vector<at::Tensor> wanted = parameters;
      if (i > 0) wanted.push_back(input);
      auto found = torch::autograd::grad({output}, wanted, {gradient}, std::nullopt, false, true);
      gradient = i > 0 ? found.back() : at::Tensor();
      found.resize(parameters.size());
      take(found);
    }
  }

 private:
  struct Entry {
    at::Tensor input;
    Body body;
  };
  std::vector<Entry> entries_;
};

class OneProcess {
 public:
  OneProcess(const Task& task, int world, const SumOrder& order)
      : task_(task),
        world_(world),
        order_(order),
        model_(task.make_model()),
        spec_(task.spec(*model_)) {
    for (size_t u = 0; u < spec_.units.size(); ++u) bind_unit(u);
    std::vector<model::UnitStorage*> storages;
    for (const Unit& unit : units_) storages.push_back(unit.storage.get());
    model_->bind_units(storages);
    make_optimizer();
  }

  Trained operator()() {
    for (int step = 0; step < task_.steps(); ++step) train_step(step);
    std::map<std::string, size_t> by_name;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto* data = parameters_[i].master.const_data_ptr<float>();
      out_.weights.emplace_back(data, data + parameters_[i].master.numel());
      by_name[parameters_[i].name] = i;
    }
    formats::Hash64 hash;  // as train::weight_hash
    for (const auto& [name, i] : by_name) {
      hash.update(std::as_bytes(std::span<const float>(out_.weights[i])));
    }
    out_.hash = hash.hex();
    return std::move(out_);
  }

 private:
  struct Unit {
    model::FlatLayout layout;
    at::Tensor master;      // fp32, flat
    at::Tensor parameters;  // in the compute dtype; fp32: the master
    at::Tensor gradient;    // in the accumulate dtype
    std::unique_ptr<model::UnitStorage> storage;
  };
  struct Parameter {
    std::string name;
    model::UnitDtypes dtypes;
    at::Tensor value;   // what the model computes with
    at::Tensor master;  // its place in that of the unit
    at::Tensor gradient;
  };

  // Every parameter begins at a multiple of 64 elements, so that optimizer and norm see the blocks
  // which they see under a strategy.
  void bind_unit(size_t u) {
    const model::UnitSpec& spec = spec_.units[u];
    Unit unit;
    unit.layout = model::make_flat_layout(spec, 64, 64);
    const int64_t numel = unit.layout.numel;
    const at::ScalarType compute = to_torch(spec.dtypes.compute);
    unit.master = at::zeros({numel});
    unit.parameters = compute == at::kFloat ? unit.master : at::zeros({numel}, compute);
    unit.gradient = at::zeros({numel}, to_torch(spec.dtypes.accumulate));
    unit.storage = std::make_unique<model::UnitStorage>(spec, unit.layout, compute);
    unit.storage->bind(unit.parameters.data_ptr());
    for (size_t p = 0; p < spec.parameters.size(); ++p) {
      const at::Tensor value = unit.storage->parameter(p);
      const int64_t offset = unit.layout.offsets[p];
      const auto place_in = [&](const at::Tensor& flat) {
        return flat.narrow(0, offset, value.numel()).view(value.sizes());
      };
      parameters_.push_back({spec.parameters[p].name, spec.dtypes, value, place_in(unit.master),
                             place_in(unit.gradient)});
      model_->initialize(static_cast<int>(u), static_cast<int>(p), parameters_.back().master,
                         task_.seed);
    }
    unit.parameters.copy_(unit.master);
    if (numel > 0) add_partition(static_cast<int>(u), unit);
    units_.push_back(std::move(unit));
  }

  void add_partition(int u, const Unit& unit) {
    const model::UnitSpec& spec = spec_.units[static_cast<size_t>(u)];
    model::Partition partition;
    partition.unit = u;
    partition.numel = unit.layout.numel;
    partition.master = unit.master.mutable_data_ptr<float>();
    partition.is_trainable = spec.is_trainable();
    partition.gradient_dtype = spec.dtypes.accumulate;
    if (spec.is_trainable()) partition.gradient = unit.gradient.data_ptr();
    partitions_.push_back(partition);
  }

  void make_optimizer() {
    optim::OptimizerOptions options;
    options.name = task_.optimizer;
    options.epsilon = task_.adam_epsilon;
    const auto allocate = [](int64_t numel) -> Result<optim::StateMemory> {
      const at::Tensor memory = at::zeros({numel});
      return optim::StateMemory(memory.mutable_data_ptr<float>(), [memory](float*) {});
    };
    std::vector<model::FlatLayout> layouts;
    for (const Unit& unit : units_) layouts.push_back(unit.layout);
    const optim::ParameterGroups groups =
        optim::assign_groups(spec_, {}, task_.weight_decay).value();
    optimizer_ =
        optim::make_optimizer(options, {spec_, layouts, partitions_, groups, allocate}).value();
  }

  // Adds the gradients of one micro-batch to `sum`.
  void micro_batch(const BatchPlace& place, Gradients& sum) {
    hooks::DirectRunner plain;
    RecomputingLoop recomputing;
    const bool adds_entries = order_.adds_each_entry;
    const zoo::LossOutput loss = model_->forward_loss(
        task_.batch(place), adds_entries ? static_cast<hooks::UnitRunner&>(recomputing) : plain);
    loss_sums_[static_cast<size_t>(place.rank)] += loss.loss_sum.item<double>();
    tokens_ += loss.label_tokens;
    std::vector<size_t> trained;
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].value.requires_grad()) continue;
      trained.push_back(i);
      inputs.push_back(parameters_[i].value);
    }
    const auto take = [&](const std::vector<at::Tensor>& found) {
      Gradients out(parameters_.size());
      for (size_t i = 0; i < trained.size(); ++i) out[trained[i]] = found[i];
      add(sum, out);
    };
    if (adds_entries) {
      Gradients of_entries(inputs.size());  // in the compute dtypes, as autograd adds them
      recomputing.backward(inputs, [&](const Gradients& found) {
        for (size_t i = 0; i < found.size(); ++i) {
          if (!found[i].defined()) continue;
          of_entries[i] = of_entries[i].defined() ? of_entries[i] + found[i] : found[i];
        }
      });
      take(of_entries);
    } else if (loss.loss_sum.requires_grad()) {
      take(torch::autograd::grad({loss.loss_sum}, inputs, {}, std::nullopt, false, true));
    }
    sum.resize(parameters_.size());
  }

  // sum + more, in the accumulate dtypes.
  void add(Gradients& sum, const Gradients& more) const {
    sum.resize(parameters_.size());
    for (size_t i = 0; i < more.size(); ++i) {
      if (!more[i].defined()) continue;
      const at::ScalarType dtype = to_torch(parameters_[i].dtypes.accumulate);
      sum[i] = sum[i].defined() ? sum[i].add_(more[i]) : more[i].to(dtype, false, true);
    }
  }

  // The sum over these in order, in the dtype on the wire: in fp32, rounded once.
  static at::Tensor sum_on_wire(const std::vector<at::Tensor>& parts, at::ScalarType dtype) {
    at::Tensor sum;
    for (const at::Tensor& part : parts) {
      if (!part.defined()) continue;
      const at::Tensor sent = part.to(dtype).to(at::kFloat);
      sum = sum.defined() ? sum + sent : sent;
    }
    return sum.defined() ? sum.to(dtype) : sum;
  }

  // One micro-batch over ranks, or one sum a rank.
  Gradients over_ranks(const std::vector<Gradients>& by_rank) const {
    if (world_ == 1) return by_rank[0];  // nothing is sent
    const int group = order_.group == 0 ? world_ : order_.group;
    Gradients sum(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::ScalarType wire = to_torch(parameters_[i].dtypes.reduce);
      std::vector<at::Tensor> groups;
      for (int first = 0; first < world_; first += group) {
        std::vector<at::Tensor> inside;
        for (int rank = first; rank < first + group; ++rank) {
          inside.push_back(by_rank[static_cast<size_t>(rank)][i]);
        }
        groups.push_back(sum_on_wire(inside, wire));
      }
      const at::Tensor all = sum_on_wire(groups, wire);
      if (all.defined()) sum[i] = all.to(to_torch(parameters_[i].dtypes.accumulate), false, true);
    }
    return sum;
  }

  Gradients window(int step) {
    const int micro_batches = task_.windows[static_cast<size_t>(step)];
    Gradients sum;
    std::vector<Gradients> by_rank(static_cast<size_t>(world_));
    for (int micro = 0; micro < micro_batches; ++micro) {
      for (int rank = 0; rank < world_; ++rank) {
        Gradients& mine = by_rank[static_cast<size_t>(rank)];
        if (order_.adds_ranks_first) mine.clear();
        micro_batch({step, rank, micro}, mine);
      }
      if (order_.adds_ranks_first) add(sum, over_ranks(by_rank));
    }
    return order_.adds_ranks_first ? sum : over_ranks(by_rank);
  }

  void train_step(int step) {
    loss_sums_.assign(static_cast<size_t>(world_), 0);
    tokens_ = 0;
    const Gradients sum = window(step);
    for (size_t i = 0; i < sum.size(); ++i) {
      if (sum[i].defined()) {
        parameters_[i].gradient.copy_(sum[i]);
      } else {
        parameters_[i].gradient.zero_();
      }
    }
    double loss_sum = 0;
    for (const double of_rank : loss_sums_) loss_sum += of_rank;
    const auto tokens = static_cast<double>(tokens_);
    const optim::Clipping clipping = task_.clipping();
    optim::NoReducer reducer;
    const double norm =
        optim::gradient_norm(partitions_, clipping.norm_type, {}, reducer).value() / tokens;
    const Status stepped = optimizer_->step(task_.learning_rate,
                                            optim::gradient_scale(clipping, norm, tokens), reducer);
    EXPECT_TRUE(stepped.ok()) << stepped.message();
    for (Unit& unit : units_) unit.parameters.copy_(unit.master);  // to nearest even
    out_.losses.push_back(loss_sum / tokens);
    out_.norms.push_back(norm);
    out_.tokens.push_back(tokens_);
  }

  const Task& task_;
  const int world_;
  const SumOrder order_;
  std::unique_ptr<zoo::Model> model_;
  const model::ModelSpec spec_;
  std::vector<Unit> units_;
  std::vector<Parameter> parameters_;  // of all units
  std::vector<model::Partition> partitions_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<double> loss_sums_;  // by rank
  int64_t tokens_ = 0;
  Trained out_;
};

}  // namespace

Trained train_in_one_process(const Task& task, int world, const SumOrder& order) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  at::set_num_threads(1);
  return OneProcess(task, world, order)();
}

}  // namespace strata::tests
