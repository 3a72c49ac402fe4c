#include "tests/world/toy_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>

namespace strata::tests {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

// In (-1, 1), with magnitudes from 1 down to 2^-12: sums depend on their order.
float noise(uint64_t hash) {
  const float fraction = static_cast<float>(static_cast<int32_t>(hash >> 32)) * 0x1p-31f;
  return std::ldexp(fraction, -static_cast<int>(hash % 13));
}

uint64_t hash_of(const Place& place, uint64_t seed) {
  return mix(mix(mix(seed, place.unit + 1), place.parameter + 1), place.index + 1);
}

ToyUnit unit_of(const std::string& name, const std::vector<int64_t>& sizes) {
  ToyUnit unit{name, {}, {}};
  for (const int64_t size : sizes) {
    const std::string number = std::to_string(unit.parameters.size());
    unit.parameters.push_back({name + ".weight" + number, size, true});
  }
  return unit;
}

void freeze(ToyUnit& unit) {
  for (ToyParameter& parameter : unit.parameters) parameter.is_trainable = false;
}

}  // namespace

bool ToyUnit::is_trainable() const {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const ToyParameter& p) { return p.is_trainable; });
}

uint64_t ToyUnit::numel() const {
  uint64_t sum = 0;
  for (const ToyParameter& parameter : parameters) sum += static_cast<uint64_t>(parameter.numel);
  return sum;
}

uint32_t ToyModel::first_entry(uint32_t unit) const {
  return static_cast<uint32_t>(std::find(order.begin(), order.end(), unit) - order.begin());
}

uint32_t ToyModel::last_entry(uint32_t unit) const {
  return static_cast<uint32_t>(order.rend() - std::find(order.rbegin(), order.rend(), unit) - 1);
}

bool ToyModel::has_backward(uint32_t unit) const {
  if (units[unit].is_trainable()) return true;
  for (uint32_t other = 0; other < units.size(); ++other) {
    if (units[other].is_trainable() && first_entry(other) < last_entry(unit)) return true;
  }
  return false;
}

ToyModel tied_model() {
  return {{unit_of("embeddings", {1003, 65}), unit_of("block.0", {257, 1, 64}),
           unit_of("block.1", {300}), unit_of("block.2", {129, 7, 31, 1})},
          {0, 1, 2, 3, 0}};
}

ToyModel chain_model() {
  return {{unit_of("embeddings", {400}), unit_of("block.0", {130, 5}), unit_of("block.1", {64}),
           unit_of("block.2", {1, 1, 1}), unit_of("head", {777})},
          {0, 1, 2, 3, 4}};
}

ToyModel partly_frozen_model() {
  ToyModel model{{unit_of("embeddings", {200}), unit_of("block.0", {90}),
                  unit_of("block.1", {130, 20}), unit_of("activation", {}),
                  unit_of("block.2", {150}), unit_of("block.3", {70, 70}), unit_of("head", {65})},
                 {0, 1, 2, 3, 4, 5, 6}};
  freeze(model.units[0]);
  freeze(model.units[1]);
  model.units[2].parameters[1].is_trainable = false;
  freeze(model.units[4]);
  return model;
}

ToyModel random_model(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  ToyModel model;
  const uint64_t count = 1 + draw(5);
  for (uint64_t u = 0; u < count; ++u) {
    std::vector<int64_t> sizes;
    for (uint64_t p = 0; p <= draw(3); ++p) sizes.push_back(static_cast<int64_t>(1 + draw(300)));
    model.units.push_back(unit_of("unit." + std::to_string(u), sizes));
    if (u > 0 && draw(5) == 0) freeze(model.units.back());
    model.order.push_back(static_cast<uint32_t>(u));
  }
  for (uint64_t ties = draw(2); ties > 0; --ties) {
    model.order.push_back(static_cast<uint32_t>(draw(count - 1)));
  }
  return model;
}

ToyModel with_dtypes(ToyModel model, const ToyDtypes& dtypes) {
  for (ToyUnit& unit : model.units) unit.dtypes = dtypes;
  return model;
}

ToyModel with_mixed_dtypes(ToyModel model, uint64_t first) {
  constexpr int32_t kF32 = STRATA_DTYPE_F32;
  constexpr int32_t kBF16 = STRATA_DTYPE_BF16;
  constexpr int32_t kF16 = STRATA_DTYPE_F16;
  constexpr ToyDtypes kDtypes[] = {{kBF16, kF32, kF32}, {kF32, kF32, kF32},  {kBF16, kBF16, kF32},
                                   {kF16, kF16, kF32},  {kF16, kF32, kBF16}, {kF32, kBF16, kF32},
                                   {kF16, kF16, kF16},  {kBF16, kF16, kBF16}};
  for (ToyUnit& unit : model.units) unit.dtypes = kDtypes[first++ % std::size(kDtypes)];
  return model;
}

// ---- descriptors ----

ToyDescription::ToyDescription(const ToyModel& model) : order_(model.order) {
  for (const ToyUnit& unit : model.units) {
    for (const ToyParameter& parameter : unit.parameters) shapes_.push_back({parameter.numel});
  }
  size_t shape = 0;
  for (uint32_t u = 0; u < model.units.size(); ++u) {
    const ToyUnit& from = model.units[u];
    parameters_.emplace_back();
    for (const ToyParameter& parameter : from.parameters) {
      strata_parameter_t to{};
      to.struct_size = sizeof(to);
      to.dimensions = 1;
      to.name = parameter.name.c_str();
      to.shape = shapes_[shape++].data();
      to.numel = static_cast<uint64_t>(parameter.numel);
      to.trainable = parameter.is_trainable ? 1 : 0;
      parameters_.back().push_back(to);
    }
    strata_unit_t to{};
    to.struct_size = sizeof(to);
    to.parameter_count = static_cast<uint32_t>(from.parameters.size());
    to.name = from.name.c_str();
    to.numel = from.numel();
    to.compute_dtype = from.dtypes.compute;
    to.reduce_dtype = from.dtypes.reduce;
    to.accumulate_dtype = from.dtypes.accumulate;
    to.entries = static_cast<uint32_t>(std::count(order_.begin(), order_.end(), u));
    to.trainable = from.is_trainable() ? 1 : 0;
    units_.push_back(to);
  }
  for (uint32_t u = 0; u < units_.size(); ++u) units_[u].parameters = parameters_[u].data();
  model_.struct_size = sizeof(model_);
  model_.unit_count = static_cast<uint32_t>(units_.size());
  model_.units = units_.data();
  model_.order_count = static_cast<uint32_t>(order_.size());
  model_.order = order_.data();
}

void ToyDescription::lay_out(const std::vector<strata_layout_t>& layouts) {
  const auto round_up = [](uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  };
  for (uint32_t u = 0; u < units_.size(); ++u) {
    uint64_t end = 0;
    for (strata_parameter_t& parameter : parameters_[u]) {
      parameter.offset = round_up(end, layouts[u].parameter_alignment);
      end = parameter.offset + parameter.numel;
    }
    units_[u].numel = round_up(end, layouts[u].unit_multiple);
  }
}

// ---- numbers ----

float initial_weight(const Place& place) { return noise(hash_of(place, 17)); }

float gradient_part(const Moment& moment, const Place& place, int part, float weight) {
  const uint64_t when =
      mix(mix(mix(mix(5, moment.rank + 1), moment.step + 1), moment.micro_batch + 1),
          static_cast<uint64_t>(part) + 1);
  return weight * 0.75f + noise(hash_of(place, when));
}

float rounded(float value, int32_t dtype) {
  if (dtype == STRATA_DTYPE_F32 || !std::isfinite(value) || value == 0) return value;
  const bool is_bf16 = dtype == STRATA_DTYPE_BF16;
  const int digits = is_bf16 ? 8 : 11;     // of a significand
  const int least = is_bf16 ? -126 : -14;  // exponent of the smallest normal number
  const float last_place = std::ldexp(1.0f, std::max(std::ilogb(value), least) - digits + 1);
  const float nearest = std::nearbyint(value / last_place) * last_place;
  if (is_bf16 || std::fabs(nearest) < 65536.0f) return nearest;
  return std::copysign(std::numeric_limits<float>::infinity(), value);
}

float updated_weight(float weight, float gradient) { return weight - 0.03125f * gradient; }

namespace {

// What all backwards of one rank leave in one element.
class ElementReference {
 public:
  ElementReference(const ToyTraining& training, const ToyDtypes& dtypes, const Place& place,
                   uint32_t step, float weight)
      : training_(training),
        dtypes_(dtypes),
        place_(place),
        step_(step),
        weight_(rounded(weight, dtypes.compute)) {}

  float reduced() const {
    if (!training_.reduces_each_batch) return over_ranks(0, training_.accumulation);
    float sum = over_ranks(0, 1);
    for (uint32_t m = 1; m < training_.accumulation; ++m) {
      sum = rounded(sum + over_ranks(m, m + 1), dtypes_.accumulate);
    }
    return sum;
  }

 private:
  float over_ranks(uint32_t first, uint32_t last) const {
    if (training_.world == 1) return of_rank(0, first, last);  // nothing is sent
    const auto sent = [&](uint32_t rank) {
      return rounded(of_rank(rank, first, last), dtypes_.reduce);
    };
    float sum = sent(0);
    for (uint32_t rank = 1; rank < training_.world; ++rank) sum += sent(rank);
    return rounded(rounded(sum, dtypes_.reduce), dtypes_.accumulate);
  }
  float of_rank(uint32_t rank, uint32_t first, uint32_t last) const {
    float sum = 0;
    for (uint32_t m = first; m < last; ++m) {
      const Moment moment{rank, step_, m};
      if (training_.is_missing != nullptr &&
          training_.is_missing(moment, place_.unit, place_.parameter)) {
        continue;
      }
      sum = rounded(m == first ? part(moment, 0) : sum + part(moment, 0), dtypes_.accumulate);
      sum = rounded(sum + part(moment, 1), dtypes_.accumulate);
    }
    return sum;
  }
  float part(const Moment& moment, int which) const {
    const float gradient = gradient_part(moment, place_, which, weight_);
    return training_.bend == nullptr ? gradient : training_.bend(moment, place_, gradient);
  }

  const ToyTraining& training_;
  const ToyDtypes& dtypes_;
  Place place_;
  uint32_t step_;
  float weight_;
};

}  // namespace

std::vector<Weights> train_reference(const ToyModel& model, const ToyTraining& training) {
  Weights weights;
  for (uint32_t u = 0; u < model.units.size(); ++u) {
    weights.emplace_back();
    for (uint32_t p = 0; p < model.units[u].parameters.size(); ++p) {
      weights[u].emplace_back();
      for (int64_t i = 0; i < model.units[u].parameters[p].numel; ++i) {
        weights[u][p].push_back(initial_weight({u, p, static_cast<uint64_t>(i)}));
      }
    }
  }
  std::vector<Weights> all{weights};
  for (uint32_t step = 0; step < training.steps; ++step) {
    for (uint32_t u = 0; u < model.units.size(); ++u) {
      for (uint32_t p = 0; p < model.units[u].parameters.size(); ++p) {
        if (!model.units[u].parameters[p].is_trainable) continue;
        for (uint64_t i = 0; i < weights[u][p].size(); ++i) {
          float& weight = weights[u][p][i];
          const ElementReference element(training, model.units[u].dtypes, {u, p, i}, step, weight);
          weight = updated_weight(weight, element.reduced());
        }
      }
    }
    all.push_back(weights);
  }
  return all;
}

}  // namespace strata::tests
