// The plain loop of trained.h: no strategy, no session, no partition.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "strata/formats/hash.h"
#include "strata/optim/adamw.h"
#include "strata/optim/norm.h"
#include "tests/world/trained.h"

namespace strata::tests {
namespace {

// Gradients of one micro-batch, or sums of them: by parameter, undefined where there is none.
using Gradients = std::vector<at::Tensor>;

void add(Gradients& sum, const Gradients& more) {
  if (sum.empty()) sum.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) {
    if (!more[i].defined()) continue;
    sum[i] = sum[i].defined() ? sum[i] + more[i] : more[i].clone();
  }
}

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
      : task_(task), world_(world), order_(order), model_(task.make_model()) {
    for (size_t u = 0; u < model_->spec().units.size(); ++u) bind_unit(u);
    std::vector<model::UnitStorage*> storages;
    for (const auto& storage : storages_) storages.push_back(storage.get());
    model_->bind_units(storages);
    make_optimizer();
  }

  Trained operator()() {
    for (int step = 0; step < task_.steps(); ++step) train_step(step);
    std::map<std::string, size_t> by_name;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto* data = parameters_[i].const_data_ptr<float>();
      out_.weights.emplace_back(data, data + parameters_[i].numel());
      by_name[names_[i]] = i;
    }
    formats::Hash64 hash;  // as train::weight_hash
    for (const auto& [name, i] : by_name) {
      hash.update(std::as_bytes(std::span<const float>(out_.weights[i])));
    }
    out_.hash = hash.hex();
    return std::move(out_);
  }

 private:
  // Every parameter begins at a multiple of 64 elements, so that optimizer and norm see the blocks
  // which they see under a strategy.
  void bind_unit(size_t u) {
    const model::UnitSpec& unit = model_->spec().units[u];
    layouts_.push_back(model::make_flat_layout(unit, 64, 64));
    const int64_t numel = layouts_.back().numel;
    masters_.push_back(at::zeros({numel}));
    gradients_.push_back(at::zeros({numel}));
    storages_.push_back(std::make_unique<model::UnitStorage>(unit, layouts_.back()));
    storages_.back()->bind(masters_.back().data_ptr());
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const at::Tensor parameter = storages_.back()->parameter(p);
      model_->initialize(static_cast<int>(u), static_cast<int>(p), parameter.detach(), task_.seed);
      parameters_.push_back(parameter);
      names_.push_back(unit.parameters[p].name);
      const int64_t offset = layouts_.back().offsets[p];
      sums_.push_back(gradients_.back().narrow(0, offset, parameter.numel()));
    }
    if (numel == 0) return;
    model::Partition partition;
    partition.unit = static_cast<int>(u);
    partition.numel = numel;
    partition.master = masters_.back().mutable_data_ptr<float>();
    partition.is_trainable = unit.is_trainable();
    if (unit.is_trainable()) partition.gradient = gradients_.back().data_ptr();
    partitions_.push_back(partition);
  }

  void make_optimizer() {
    optim::AdamWOptions options;
    options.weight_decay = task_.weight_decay;
    options.epsilon = task_.adam_epsilon;
    const auto allocate = [](int64_t numel) -> Result<optim::AdamW::Memory> {
      const at::Tensor memory = at::zeros({numel});
      return optim::AdamW::Memory(memory.mutable_data_ptr<float>(), [memory](float*) {});
    };
    optimizer_ =
        optim::AdamW::create(options, model_->spec(), layouts_, partitions_, allocate).value();
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
      if (!parameters_[i].requires_grad()) continue;
      trained.push_back(i);
      inputs.push_back(parameters_[i]);
    }
    const auto take = [&](const std::vector<at::Tensor>& found) {
      Gradients out(parameters_.size());
      for (size_t i = 0; i < trained.size(); ++i) out[trained[i]] = found[i];
      add(sum, out);
    };
    if (adds_entries) {
      Gradients of_entries;
      recomputing.backward(inputs, [&](const Gradients& found) { add(of_entries, found); });
      if (!of_entries.empty()) take(of_entries);
    } else if (loss.loss_sum.requires_grad()) {
      take(torch::autograd::grad({loss.loss_sum}, inputs, {}, std::nullopt, false, true));
    }
    sum.resize(parameters_.size());
  }

  // One micro-batch over ranks, or one sum a rank.
  Gradients over_ranks(const std::vector<Gradients>& by_rank) const {
    Gradients sum;
    const int group = order_.group == 0 ? world_ : order_.group;
    for (int first = 0; first < world_; first += group) {
      Gradients inside;
      for (int rank = first; rank < first + group; ++rank) {
        add(inside, by_rank[static_cast<size_t>(rank)]);
      }
      add(sum, inside);
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
    optim::NormAccumulator accumulator;
    for (size_t i = 0; i < sum.size(); ++i) {
      if (sum[i].defined()) {
        sums_[i].copy_(sum[i].reshape({-1}));
      } else {
        sums_[i].zero_();
      }
    }
    for (const model::Partition& partition : partitions_) accumulator.add(partition);
    double loss_sum = 0;
    for (const double of_rank : loss_sums_) loss_sum += of_rank;
    const auto tokens = static_cast<double>(tokens_);
    const double norm = optim::NormAccumulator::norm(accumulator.limbs()) / tokens;
    const double clip =
        task_.max_grad_norm > 0 ? optim::clip_factor(norm, task_.max_grad_norm) : 1.0;
    const Status stepped = optimizer_->step(task_.learning_rate, clip / tokens);
    EXPECT_TRUE(stepped.ok()) << stepped.message();
    out_.losses.push_back(loss_sum / tokens);
    out_.norms.push_back(norm);
    out_.tokens.push_back(tokens_);
  }

  const Task& task_;
  const int world_;
  const SumOrder order_;
  std::unique_ptr<zoo::Model> model_;
  std::vector<model::FlatLayout> layouts_;
  std::vector<at::Tensor> masters_;    // by unit
  std::vector<at::Tensor> gradients_;  // by unit, flat
  std::vector<std::unique_ptr<model::UnitStorage>> storages_;
  std::vector<at::Tensor> parameters_;  // of all units
  std::vector<std::string> names_;
  std::vector<at::Tensor> sums_;  // their places in gradients_
  std::vector<model::Partition> partitions_;
  std::unique_ptr<optim::AdamW> optimizer_;
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
