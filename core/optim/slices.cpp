#include "strata/optim/slices.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "strata/base/check.h"

namespace strata::optim {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kGrainBlocks = 512;  // 128 KiB of each of an update's arrays

int64_t round_up(int64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

void add_slices(const OptimizerInput& input, size_t index, Joining joining,
                std::vector<Slice>& out) {
  const model::Partition& partition = input.partitions[index];
  const auto u = static_cast<size_t>(partition.unit);
  const model::UnitSpec& unit = input.spec.units[u];
  const int64_t last = partition.offset + partition.numel;
  const size_t first_of_partition = out.size();
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const model::ParameterSpec& parameter = unit.parameters[i];
    const int64_t offset = input.layouts[u].offsets[i];
    const int64_t from = std::max(offset, partition.offset);
    const int64_t to = std::min(round_up(offset + parameter.numel()), last);
    if (from >= to || !parameter.is_trainable) continue;
    const int group = input.groups.group_of[u][i];
    if (joining == Joining::kNeighboursOfOneGroup && out.size() > first_of_partition &&
        out.back().group == group && out.back().begin + out.back().numel == from) {
      out.back().numel += to - from;
      continue;
    }
    const int64_t at = from - partition.offset;
    STRATA_CHECK(at % kAlignment == 0 && (to - from) % kAlignment == 0) << from << " " << to;
    Slice slice;
    slice.partition = index;
    slice.unit = partition.unit;
    slice.parameter = i;
    slice.group = group;
    slice.begin = from;
    slice.numel = to - from;
    slice.master = partition.master + at;
    slice.gradient = Gradient(partition).from(at);
    slice.replica = partition.replica;
    slice.replicas = partition.replicas;
    out.push_back(slice);
  }
}

}  // namespace

Result<std::vector<Slice>> cut_slices(const std::string& name, const OptimizerInput& input,
                                      Joining joining) {
  std::vector<Slice> out;
  for (size_t index = 0; index < input.partitions.size(); ++index) {
    const model::Partition& partition = input.partitions[index];
    if (!is_updated(partition)) continue;
    if (!is_gradient_dtype(partition.gradient_dtype)) {
      return unsupported(
          fmt::format("{}: a gradient of dtype {}, and only fp32, bf16 and fp16 can be read. HINT: "
                      "another reduce dtype",
                      name, partition.gradient_dtype));
    }
    add_slices(input, index, joining, out);
  }
  return out;
}

void parallel_blocks(int64_t numel, const std::function<void(int64_t begin, int64_t end)>& body) {
  at::parallel_for(0, numel / kAlignment, kGrainBlocks,
                   [&](int64_t begin, int64_t end) { body(begin * kAlignment, end * kAlignment); });
}

kernels::Arrays arrays_at(const Slice& slice, int64_t begin, int64_t numel) {
  const auto at = [&](float* values) { return values == nullptr ? nullptr : values + begin; };
  return {at(slice.master), nullptr, at(slice.states[0]), at(slice.states[1]), numel};
}

void for_each_chunk_of(const Slice& slice, const GradientScale& scale,
                       const std::function<void(const kernels::Arrays& arrays)>& body) {
  const ScaledGradient gradient(slice.gradient, scale);
  parallel_blocks(slice.numel, [&](int64_t first, int64_t last) {
    float scratch[kChunk];
    for_each_chunk(first, last, [&](int64_t begin, int64_t numel) {
      kernels::Arrays arrays = arrays_at(slice, begin, numel);
      arrays.gradients = gradient.read(begin, numel, scratch);
      body(arrays);
    });
  });
}

void apply_directions(const Slice& slice, const Values& directions, double keep, double rate) {
  parallel_blocks(slice.numel, [&](int64_t first, int64_t last) {
    float scratch[kChunk];
    for_each_chunk(first, last, [&](int64_t begin, int64_t numel) {
      const float* const direction = directions(begin, numel, scratch);
      kernels::apply_direction(slice.master + begin, direction, numel, keep, rate);
    });
  });
}

Status SlicedOptimizer::lay_out(const OptimizerInput& input, std::span<const char* const> kinds,
                                Joining joining) {
  groups_ = input.groups.groups;
  STRATA_ASSIGN_OR_RETURN(slices_, cut_slices(name(), input, joining));
  auto slice = slices_.begin();
  for (size_t index = 0; index < input.partitions.size(); ++index) {
    const model::Partition& partition = input.partitions[index];
    if (!is_updated(partition)) continue;
    std::vector<float*> states;
    for (const char* kind : kinds) {
      StateTensor state{kind, partition.unit, partition.offset, partition.numel};
      state.is_first_copy = partition.replica == 0;
      STRATA_ASSIGN_OR_RETURN(float* const data, add_state(input.allocate, std::move(state)));
      states.push_back(data);
    }
    for (; slice != slices_.end() && slice->partition == index; ++slice) {
      for (size_t k = 0; k < states.size(); ++k) {
        slice->states[k] = states[k] + (slice->begin - partition.offset);
      }
    }
  }
  return {};
}

}  // namespace strata::optim
