// This rank's place among all ranks.
#ifndef STRATA_BASE_WORLD_H_
#define STRATA_BASE_WORLD_H_

namespace strata {

struct World {
  int rank = 0;  // 0 .. size-1
  int size = 1;
  int local_rank = 0;  // place on this node
  int local_size = 1;
  int node = 0;
  int node_count = 1;
};

}  // namespace strata

#endif  // STRATA_BASE_WORLD_H_
