// A random training: model, strategy with options, world, windows. All of it follows from one
// number.
#ifndef STRATA_TESTS_WORLD_SEARCH_DRAW_H_
#define STRATA_TESTS_WORLD_SEARCH_DRAW_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/world/odd_model.h"
#include "tests/world/trained.h"

namespace strata::tests {

// A strategy of this build and the keys of its options.
struct Searched {
  std::string name;
  std::vector<std::string> keys;
};

// Every strategy of every plugin of this build, with its whole option table.
std::vector<Searched> searched_strategies();

struct Draw {
  uint64_t seed = 0;
  OddShape shape;
  std::string strategy;                        // "fsdp"
  std::map<std::string, std::string> options;  // that differ from nothing said
  Placement placement;                         // with the options in its strategy
  std::vector<int> windows;
  std::vector<model::UnitDtypes> dtypes;  // by unit
  double max_grad_norm = 0;

  bool is_set(const std::string& key, const std::string& value) const;
  // Ranks over which a unit is sharded; the world where nothing says otherwise.
  int shard_group_size() const;
  SumOrder order() const;
  Task task() const;
  // All of it, and how to run it again.
  std::string text() const;
};

Draw draw(uint64_t seed, const std::vector<Searched>& strategies);

}  // namespace strata::tests

#endif  // STRATA_TESTS_WORLD_SEARCH_DRAW_H_
