#include "tests/world/tasks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "strata/zoo/gpt2.h"

namespace strata::tests {
namespace {

constexpr int64_t kRows = 36;
constexpr int64_t kLength = 5;

Task task_of(const Division& division, int64_t vocabulary) {
  Task task;
  task.windows.assign(3, division.accumulation);
  task.batch = [division, vocabulary](const BatchPlace& place) {
    const int64_t rows = kRows / division.world / division.accumulation;
    const at::Tensor ids =
        random_ids(static_cast<uint64_t>(100 + place.step), kRows, kLength, vocabulary);
    zoo::Batch batch;
    batch.input_ids = ids.narrow(0, (place.micro * division.world + place.rank) * rows, rows);
    batch.labels = batch.input_ids;
    return batch;
  };
  return task;
}

}  // namespace

at::Tensor random_ids(uint64_t seed, int64_t rows, int64_t length, int64_t vocabulary) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randint(0, vocabulary, {rows, length}, generator, at::kLong);
}

Task gpt2_task(bool is_tied, const Division& division, int blocks) {
  const nlohmann::json json = {{"model_type", "gpt2"},
                               {"vocab_size", 67},
                               {"n_positions", 8},
                               {"n_embd", 20},
                               {"n_layer", blocks},
                               {"n_head", 2},
                               {"resid_pdrop", 0.0},
                               {"embd_pdrop", 0.0},
                               {"attn_pdrop", 0.0},
                               {"initializer_range", 0.1},
                               {"tie_word_embeddings", is_tied}};
  const zoo::Gpt2Config config = zoo::parse_gpt2_config(json, "a GPT-2 of a test").value();
  Task task = task_of(division, config.vocab_size);
  task.make_model = [config] { return std::make_unique<zoo::Gpt2>(config); };
  return task;
}

Task odd_task(const OddShape& shape, const Division& division) {
  Task task = task_of(division, 64);
  task.make_model = [shape] { return std::make_unique<OddModel>(shape); };
  return task;
}

std::vector<std::string> strategies_of(int world) {
  std::vector<std::string> all = {
      "ddp",  "ddp:bucket_cap_mb=0,first_bucket_cap_mb=0", "zero1", "zero2", "zero3",
      "fsdp", "fsdp:reshard_after_forward=false"};
  if (world == 1) all.insert(all.begin(), "single");
  for (int size = 1; size <= world; ++size) {
    if (world % size == 0) all.push_back("hsdp:shard_group_size=" + std::to_string(size));
  }
  return all;
}

}  // namespace strata::tests
