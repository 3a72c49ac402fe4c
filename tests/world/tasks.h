// Tasks that tests share, and the strategies that a world can have.
#ifndef STRATA_TESTS_WORLD_TASKS_H_
#define STRATA_TESTS_WORLD_TASKS_H_

#include <string>
#include <vector>

#include "tests/world/odd_model.h"
#include "tests/world/trained.h"

namespace strata::tests {

// Random token ids (rows, length) below `vocabulary`, the same for the same seed.
at::Tensor random_ids(uint64_t seed, int64_t rows, int64_t length, int64_t vocabulary);

// Hands out the same global batch of 36 rows in each step whatever `world` and `accumulation` are,
// where their product divides 36: micro-batch m of rank r has the rows behind
// (m * world + r) * rows.
struct Division {
  int world = 1;
  int accumulation = 1;
};

// A small GPT-2, three steps.
Task gpt2_task(bool is_tied, const Division& division, int blocks = 2);
// A model made by hand, three steps.
Task odd_task(const OddShape& shape, const Division& division);

// "ddp", "zero1" ..., "hsdp:shard_group_size=2": every strategy that trains on so many ranks, each
// once in every mode that changes what it keeps gathered, and every mesh.
std::vector<std::string> strategies_of(int world);

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_TASKS_H_
