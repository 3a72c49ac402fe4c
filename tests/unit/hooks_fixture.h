// A small language for tests of core/hooks: units with content, events that are recorded and that
// free memory as full sharding would, a transformer over units, and plain autograd beside it.
#ifndef TESTS_UNIT_HOOKS_FIXTURE_H_
#define TESTS_UNIT_HOOKS_FIXTURE_H_

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/status.h"
#include "strata/hooks/unit_events.h"
#include "strata/hooks/unit_graph.h"
#include "strata/model/unit_storage.h"

namespace strata::hooks {

inline model::ParameterSpec parameter(std::string name, std::vector<int64_t> shape,
                                      bool is_trainable = true) {
  return {std::move(name), std::move(shape), is_trainable};
}

// Plays the strategy: keeps each unit's content, gathers into fresh memory at another address each
// time, frees with a fill of NaN behind, and writes down every event.
class RecordingEvents : public UnitEvents {
 public:
  RecordingEvents(const std::vector<model::UnitSpec>& specs, at::ScalarType dtype = at::kFloat) {
    for (const model::UnitSpec& spec : specs) {
      model::FlatLayout layout = model::make_flat_layout(spec, 64, 64);
      units.push_back(std::make_unique<model::UnitStorage>(spec, layout, dtype));
      content.push_back(at::zeros({layout.numel}, dtype));
      gathered.emplace_back();
      gradients.push_back(at::full({layout.numel}, kGarbage));
      missing.emplace_back();
    }
  }

  std::vector<model::UnitStorage*> storages() const {
    std::vector<model::UnitStorage*> out;
    for (const auto& unit : units) out.push_back(unit.get());
    return out;
  }

  // The content of one parameter, to write before training.
  at::Tensor content_of(int unit, size_t index) const { return slice(content, unit, index); }
  at::Tensor gradient_of(int unit, size_t index) const { return slice(gradients, unit, index); }
  void set_gradient_dtype(at::ScalarType dtype) {
    for (at::Tensor& gradient : gradients) gradient = gradient.to(dtype);
  }

  void before_forward(int unit, Phase phase, int next_unit) override {
    note(fmt::format("{}before_forward {}>{}", prefix(phase), unit, next_unit));
    gather(unit);
  }
  void before_backward(int unit, int next_unit) override {
    note(fmt::format("before_backward {}>{}", unit, next_unit));
    gather(unit);
  }
  void after_forward(int unit, Phase phase, int next_unit, bool backward_begins_here) override {
    note(fmt::format("{}after_forward {}>{}{}", prefix(phase), unit, next_unit,
                     backward_begins_here ? " !" : ""));
    if (phase != Phase::kRecompute && !backward_begins_here) free(unit);
  }
  GradientTarget gradient_target(int unit) override {
    note(fmt::format("gradient_target {}", unit));
    const at::Tensor& gradient = gradients[static_cast<size_t>(unit)];
    return {gradient.data_ptr(), gradient.scalar_type(), is_accumulating};
  }
  void after_backward(int unit, int next_unit, std::span<const int> got_none) override {
    note(fmt::format("after_backward {}>{}", unit, next_unit));
    missing[static_cast<size_t>(unit)].assign(got_none.begin(), got_none.end());
    free(unit);
  }

  static constexpr float kGarbage = 7777.0f;

  std::vector<std::unique_ptr<model::UnitStorage>> units;
  std::vector<at::Tensor> content;
  std::vector<at::Tensor> gathered;
  std::vector<at::Tensor> gradients;
  std::vector<std::vector<int>> missing;
  std::vector<std::string> log;
  std::string fails_at;  // the event that throws
  std::function<void(const std::string&)> on_event;
  bool is_accumulating = false;

 private:
  static const char* prefix(Phase phase) {
    return phase == Phase::kRecompute   ? "recompute "
           : phase == Phase::kInference ? "inference "
                                        : "";
  }
  void note(const std::string& event) {
    log.push_back(event);
    if (on_event) on_event(event);
    if (event == fails_at) throw StatusError(peer_lost("rank 1 died in " + event));
  }
  void gather(int unit) {
    const auto u = static_cast<size_t>(unit);
    if (units[u]->is_bound()) return;
    gathered[u] = content[u].clone();
    units[u]->bind(gathered[u].data_ptr());
  }
  void free(int unit) {
    const auto u = static_cast<size_t>(unit);
    units[u]->unbind();
    if (gathered[u].defined()) gathered[u].fill_(std::numeric_limits<float>::quiet_NaN());
    gathered[u].reset();
  }
  at::Tensor slice(const std::vector<at::Tensor>& flat, int unit, size_t index) const {
    const model::UnitStorage& storage = *units[static_cast<size_t>(unit)];
    const model::ParameterSpec& spec = storage.spec().parameters[index];
    return flat[static_cast<size_t>(unit)]
        .narrow(0, storage.layout().offsets[index], spec.numel())
        .view(spec.shape);
  }
};

// A causal transformer: unit 0 embeds and is entered again as the head, units 1.. are blocks.
struct Transformer {
  static constexpr int64_t kWidth = 16, kHeads = 2, kVocabulary = 24, kLength = 6, kBatch = 3;

  int blocks = 2;
  double dropout = 0.0;

  std::vector<model::UnitSpec> specs() const {
    const int64_t d = kWidth;
    std::vector<model::UnitSpec> specs(1);
    specs[0].name = "embed";
    specs[0].parameters = {parameter("wte", {kVocabulary, d}), parameter("wpe", {kLength, d}),
                           parameter("ln_f.w", {d}), parameter("ln_f.b", {d})};
    for (int i = 0; i < blocks; ++i) {
      const std::string b = fmt::format("block.{}", i);
      specs.push_back({b,
                       {parameter(b + ".ln_1.w", {d}), parameter(b + ".ln_1.b", {d}),
                        parameter(b + ".qkv.w", {3 * d, d}), parameter(b + ".qkv.b", {3 * d}),
                        parameter(b + ".proj.w", {d, d}), parameter(b + ".proj.b", {d}),
                        parameter(b + ".fc.w", {4 * d, d}), parameter(b + ".fc.b", {4 * d}),
                        parameter(b + ".out.w", {d, 4 * d}), parameter(b + ".out.b", {d})}});
    }
    return specs;
  }
  std::vector<int> order() const {
    std::vector<int> order;
    for (int u = 0; u <= blocks; ++u) order.push_back(u);
    order.push_back(0);
    return order;
  }

  using Parameters = std::function<const std::vector<at::Tensor>&(int unit)>;

  static at::Tensor embed(const at::Tensor& ids, const std::vector<at::Tensor>& p) {
    return at::embedding(p[0], ids) + p[1];
  }
  at::Tensor block(const at::Tensor& x, const std::vector<at::Tensor>& p) const {
    const int64_t b = x.size(0), t = x.size(1);
    at::Tensor h = at::layer_norm(x, {kWidth}, p[0] + 1.0, p[1]);
    const at::Tensor qkv =
        at::linear(h, p[2], p[3]).view({b, t, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    h = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, dropout, true);
    const at::Tensor y = x + at::linear(h.transpose(1, 2).reshape({b, t, kWidth}), p[4], p[5]);
    h = at::linear(at::gelu(at::linear(y, p[6], p[7])), p[8], p[9]);
    return y + at::dropout(h, dropout, true);
  }
  static at::Tensor head(const at::Tensor& x, const std::vector<at::Tensor>& p) {
    return at::linear(at::layer_norm(x, {kWidth}, p[2] + 1.0, p[3]), p[0]);
  }

  at::Tensor forward(UnitRunner& runner, const at::Tensor& ids, const Parameters& of) const {
    at::Tensor x = runner.enter(0, ids, [of](const at::Tensor& in) { return embed(in, of(0)); });
    for (int u = 1; u <= blocks; ++u) {
      x = runner.enter(u, x, [this, of, u](const at::Tensor& in) { return block(in, of(u)); });
    }
    return runner.enter(0, x, [of](const at::Tensor& in) { return head(in, of(0)); });
  }
  static at::Tensor loss_of(const at::Tensor& logits) { return logits.logsumexp(-1).sum(); }

  static at::Tensor ids() {
    return at::randint(kVocabulary, {kBatch, kLength}, at::TensorOptions(at::kLong));
  }
};

// A model under UnitGraph and the same under plain autograd.
class Bench {
 public:
  explicit Bench(Transformer transformer, uint64_t seed = 11)
      : transformer_(transformer), events(transformer.specs()) {
    at::manual_seed(seed);
    for (size_t u = 0; u < events.units.size(); ++u) {
      plain_.emplace_back();
      for (size_t i = 0; i < events.units[u]->parameters().size(); ++i) {
        const at::Tensor content = events.content_of(static_cast<int>(u), i);
        content.normal_(0.0, 0.1);
        plain_[u].push_back(content.clone().requires_grad_());
      }
    }
    ids = Transformer::ids();
    graph = std::make_unique<UnitGraph>(transformer_.order(), events.storages(), events);
  }

  at::Tensor forward() {
    graph->begin(Phase::kForward);
    return Transformer::loss_of(transformer_.forward(*graph, ids, units()));
  }
  void train_once() { graph->backward(forward()); }
  at::Tensor plain_forward() {
    DirectRunner runner;
    return Transformer::loss_of(transformer_.forward(
        runner, ids, [this](int u) -> auto& { return plain_[static_cast<size_t>(u)]; }));
  }
  at::Tensor plain_gradient(size_t unit, size_t index) { return plain_[unit][index].grad(); }
  Transformer::Parameters units() {
    return [this](int u) -> auto& { return events.units[static_cast<size_t>(u)]->parameters(); };
  }
  const Transformer& transformer() const { return transformer_; }

  // Names of parameters whose gradients differ in any bit, or are not there.
  std::vector<std::string> differing_gradients() {
    std::vector<std::string> names;
    for (size_t u = 0; u < events.units.size(); ++u) {
      for (size_t i = 0; i < plain_[u].size(); ++i) {
        const at::Tensor got = events.gradient_of(static_cast<int>(u), i);
        const at::Tensor& wanted = plain_[u][i].grad();
        if (wanted.defined() && at::equal(got, wanted)) continue;
        names.push_back(events.units[u]->spec().parameters[i].name);
      }
    }
    return names;
  }

 private:
  Transformer transformer_;

 public:
  RecordingEvents events;
  std::unique_ptr<UnitGraph> graph;
  at::Tensor ids;

 private:
  std::vector<std::vector<at::Tensor>> plain_;
};

// A chain of units with one weight each: y = tanh(x * w). Weights are 0.5.
struct Chain {
  explicit Chain(std::vector<bool> is_trainable, std::vector<int> order = {},
                 at::ScalarType dtype = at::kFloat)
      : order(std::move(order)), events(specs(is_trainable), dtype) {
    if (this->order.empty()) {
      for (size_t u = 0; u < is_trainable.size(); ++u) this->order.push_back(static_cast<int>(u));
    }
    for (size_t u = 0; u < is_trainable.size(); ++u) {
      events.content_of(static_cast<int>(u), 0).fill_(0.5);
    }
    graph = std::make_unique<UnitGraph>(this->order, events.storages(), events);
  }

  UnitRunner::Body body(int unit) {
    return [this, unit](const at::Tensor& x) {
      return at::tanh(x * events.units[static_cast<size_t>(unit)]->parameter(0));
    };
  }
  at::Tensor forward(const at::Tensor& input, Phase phase = Phase::kForward) {
    graph->begin(phase);
    at::Tensor x = input;
    for (const int unit : order) x = graph->enter(unit, x, body(unit));
    return x.sum();
  }
  void train_once() { graph->backward(forward(at::ones({3}))); }
  std::vector<std::string> take_log() { return std::exchange(events.log, {}); }

  static std::vector<model::UnitSpec> specs(const std::vector<bool>& is_trainable) {
    std::vector<model::UnitSpec> specs;
    for (size_t u = 0; u < is_trainable.size(); ++u) {
      const std::string name = fmt::format("unit.{}", u);
      specs.push_back({name, {parameter(name + ".w", {3}, is_trainable[u])}});
    }
    return specs;
  }

  std::vector<int> order;
  RecordingEvents events;
  std::unique_ptr<UnitGraph> graph;
};

// The Status that `body` throws; kOk if none.
template <typename Body>
Status status_of(const Body& body) {
  try {
    body();
  } catch (const StatusError& error) {
    return error.status();
  }
  return {};
}

}  // namespace strata::hooks

#endif  // TESTS_UNIT_HOOKS_FIXTURE_H_
