// Over which ranks a unit is sharded, over which it is replicated, and the collectives of both.
//
// Ranks r = g * S + j form R groups of S neighbours: a unit is sharded over the S ranks of a group
// (the in-group place j says which shard a rank has) and every group has a copy.
//
//   world = 6, S = 3:   group 0 = ranks 0 1 2    group 1 = ranks 3 4 5    R = 2
//
// One group (S = world) is plain full sharding; groups of one rank (S = 1) are whole copies.
//
// Note [Sums in rank order across groups]. Adding up inside a group first and across groups behind
// it, (r0 + r1 + r2) + (r3 + r4 + r5), rounds in other places than r0 + r1 + ... + r5. So that a
// mesh gives the bits of every other strategy, gradients are by default reduced by ONE
// reduce_scatter over the whole world, which adds in rank order; each rank gets 1/world of the
// unit, and an all_gather among the R ranks of the same place completes their shard. For that a
// shard is R pieces, those that the world's reduce_scatter gives to its R owners:
//
//   world = 6, S = 3, pieces 0..5 of the unit:   place 0 = 0 3    place 1 = 1 4    place 2 = 2 5
//
// and a gather of the unit is R all_gathers of a piece a rank, which land in order and need no
// copy. Per rank both ways send the same bytes, (1 + 1/S - 2/world) x unit for a reduction; but in
// rank order (1 + 1/S) (R-1)/R x unit of them leave the group, otherwise 2/S (R-1)/R x unit.
#ifndef STRATA_SDK_SHARD_MESH_H_
#define STRATA_SDK_SHARD_MESH_H_

#include <cstdint>

#include "strata/sdk/rank_group.h"
#include "strata/sdk/slices.h"

namespace strata::sdk {

// The arithmetic. `numel` of a unit is a multiple of world x 64.
struct MeshShape {
  uint32_t world = 1;
  uint32_t shard_group_size = 1;  // divides the world
  bool sums_in_rank_order = true;

  constexpr uint32_t groups() const { return world / shard_group_size; }
  // Pieces of a shard, of equal size.
  constexpr uint32_t pieces() const { return sums_in_rank_order ? groups() : 1; }
  constexpr uint64_t shard_numel(uint64_t numel) const { return numel / shard_group_size; }
  // Where a piece of the shard of this in-group place lies in the unit.
  constexpr Slice piece(uint64_t numel, uint32_t place, uint32_t index) const {
    return slice_of(numel, index * shard_group_size + place, shard_group_size * pieces());
  }
  // What a rank sends to gather a unit, and to reduce its gradients, in units of its elements.
  constexpr uint64_t gather_sent(uint64_t numel) const {
    return (shard_group_size - 1) * shard_numel(numel);
  }
  constexpr uint64_t reduce_sent(uint64_t numel) const {
    if (sums_in_rank_order) return (world - 1 + groups() - 1) * (numel / world);
    return (shard_group_size - 1) * shard_numel(numel) + 2 * (groups() - 1) * (numel / world);
  }
};

class ShardMesh {
 public:
  ShardMesh() = default;
  // Splits the world's communicator where the mesh has two dimensions. `group` outlives this
  // object. [collective] [blocks]
  ShardMesh(const MeshShape& shape, RankGroup& group);

  const MeshShape& shape() const { return shape_; }
  // This rank's group, and its place there.
  uint32_t group_index() const { return group_->rank() / shape_.shard_group_size; }
  uint32_t place() const { return group_->rank() % shape_.shard_group_size; }

  // unit = all shards of this rank's group, `numel` elements of `dtype`, queued in the group's
  // stream. Where `shard` lies inside `unit` it must lie where it belongs, here and below.
  // REQUIRES: shard_group_size > 1.
  void gather(const void* shard, void* unit, uint64_t numel, int32_t dtype);
  // shard = this rank's shard of the sum of all ranks' units. REQUIRES: world > 1.
  void reduce(const void* unit, void* shard, uint64_t numel, int32_t dtype);

 private:
  MeshShape shape_;
  RankGroup* group_ = nullptr;
  Communicator* sharded_ = nullptr;     // the ranks of this group; null: this rank alone
  Communicator* replicated_ = nullptr;  // the ranks of this place in all groups; null: likewise
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_SHARD_MESH_H_
