#include "strata/data/sampler.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "strata/formats/json.h"

namespace strata::data {
namespace {

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

// Uniform in [0, bound).
uint64_t bounded(uint64_t& state, uint64_t bound) {
  unsigned __int128 product = static_cast<unsigned __int128>(splitmix64(state)) * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold)
      product = static_cast<unsigned __int128>(splitmix64(state)) * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

Status check_options(const SamplerOptions& o) {
  if (o.size < 1)
    return invalid_argument("sampler: the data set has no samples. HINT: give a longer text");
  if (o.world < 1 || o.rank < 0 || o.rank >= o.world)
    return invalid_argument(fmt::format(
        "sampler: rank {} of {} ranks. HINT: ranks count from 0 to world - 1", o.rank, o.world));
  if (o.batch < 1)
    return invalid_argument(fmt::format(
        "sampler: the batch size is {}. HINT: --per-device-train-batch-size must be 1 or more",
        o.batch));
  if (o.accumulation < 1)
    return invalid_argument(fmt::format(
        "sampler: {} accumulation steps. HINT: --gradient-accumulation-steps must be 1 or more",
        o.accumulation));
  if (o.world > o.size)
    return invalid_argument(fmt::format(
        "sampler: {} ranks, but the data set has {} samples. HINT: use a longer text, a smaller "
        "--sequence-length, or at most {} ranks",
        o.world, o.size, o.size));
  int64_t global = 0;
  if (__builtin_mul_overflow(o.batch, o.accumulation, &global) ||
      __builtin_mul_overflow(global, static_cast<int64_t>(o.world), &global) || global > o.size)
    return invalid_argument(fmt::format(
        "sampler: one step takes {} ranks x {} samples x {} accumulation steps, more than the {} "
        "samples of the data set. HINT: use a longer text, a smaller "
        "--per-device-train-batch-size, or a smaller --sequence-length",
        o.world, o.batch, o.accumulation, o.size));
  return {};
}

}  // namespace

Result<DistributedSampler> DistributedSampler::create(const SamplerOptions& options) {
  STRATA_RETURN_IF_ERROR(check_options(options));
  return DistributedSampler(options);
}

DistributedSampler::DistributedSampler(const SamplerOptions& options)
    : options_(options),
      global_batch_(options.world * options.batch * options.accumulation),
      order_(static_cast<size_t>(options.size)) {
  shuffle_epoch();
}

void DistributedSampler::shuffle_epoch() {
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffle) return;
  uint64_t seed = options_.seed, epoch = ~static_cast<uint64_t>(epoch_);
  uint64_t state = splitmix64(seed) ^ splitmix64(epoch);
  for (size_t i = order_.size() - 1; i > 0; --i)
    std::swap(order_[i], order_[bounded(state, i + 1)]);
}

void DistributedSampler::settle() {
  if (options_.size - position_ >= global_batch_) return;
  ++epoch_;
  position_ = 0;
  shuffle_epoch();
}

void DistributedSampler::micro_batch(int64_t micro, std::span<int64_t> out) const {
  STRATA_CHECK(micro >= 0 && micro < options_.accumulation)
      << "micro-batch " << micro << " of " << options_.accumulation;
  STRATA_CHECK(static_cast<int64_t>(out.size()) == options_.batch)
      << out.size() << " places for a batch of " << options_.batch;
  const int64_t first = position_ + (micro * options_.world + options_.rank) * options_.batch;
  for (int64_t row = 0; row < options_.batch; ++row) out[row] = order_[first + row];
}

void DistributedSampler::advance() {
  position_ += global_batch_;
  settle();
}

nlohmann::json DistributedSampler::state() const {
  return {
      {"epoch", epoch_}, {"position", position_}, {"seed", options_.seed}, {"size", options_.size}};
}

Status DistributedSampler::restore(const nlohmann::json& state) {
  const std::string where = "sampler: the saved position";
  STRATA_ASSIGN_OR_RETURN(const int64_t epoch, formats::get_int(state, "epoch", where));
  STRATA_ASSIGN_OR_RETURN(const int64_t position, formats::get_int(state, "position", where));
  STRATA_ASSIGN_OR_RETURN(const int64_t size, formats::get_int(state, "size", where));
  if (!state.contains("seed") || !state["seed"].is_number_integer())
    return invalid_argument(where + ": 'seed' is missing or not an integer. HINT: check the file");
  const auto seed = state["seed"].get<uint64_t>();
  if (size != options_.size)
    return invalid_argument(fmt::format(
        "{} is of a data set of {} samples, this one has {}. HINT: resume with the same --data, "
        "tokenizer and --sequence-length",
        where, size, options_.size));
  if (seed != options_.seed)
    return invalid_argument(
        fmt::format("{} is of seed {}, this run has {}. HINT: resume with --seed {}", where, seed,
                    options_.seed, seed));
  if (epoch < 0 || position < 0 || position > size)
    return invalid_argument(
        fmt::format("{}: epoch {}, position {} of {} samples. HINT: the checkpoint is damaged",
                    where, epoch, position, size));
  epoch_ = epoch;
  position_ = position;
  shuffle_epoch();
  settle();
  return {};
}

}  // namespace strata::data
