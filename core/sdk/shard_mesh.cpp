#include "strata/sdk/shard_mesh.h"

#include "strata/sdk/dtypes.h"

namespace strata::sdk {

ShardMesh::ShardMesh(const MeshShape& shape, RankGroup& group) : shape_(shape), group_(&group) {
  if (group.is_alone()) return;
  if (shape.groups() == 1) {
    sharded_ = &group.communicator();
  } else if (shape.shard_group_size == 1) {
    replicated_ = &group.communicator();
  } else {
    sharded_ = &group.split(static_cast<int>(group_index()));
    replicated_ = &group.split(static_cast<int>(place()));
  }
}

void ShardMesh::gather(const void* shard, void* unit, uint64_t numel, int32_t dtype) {
  const uint64_t each = shape_.piece(numel, 0, 0).numel;
  const uint64_t size = element_bytes(dtype);
  const auto* from = static_cast<const char*>(shard);
  auto* to = static_cast<char*>(unit);
  const bool is_several = shape_.pieces() > 1;
  if (is_several) sharded_->group_start();
  for (uint32_t i = 0; i < shape_.pieces(); ++i) {
    sharded_->all_gather(from + i * each * size, to + shape_.piece(numel, 0, i).offset * size, each,
                         dtype, group_->stream());
  }
  if (is_several) sharded_->group_end();
}

// See Note [Sums in rank order across groups].
void ShardMesh::reduce(const void* unit, void* shard, uint64_t numel, int32_t dtype) {
  auto* to = static_cast<char*>(shard);
  const strata_stream_t stream = group_->stream();
  if (shape_.sums_in_rank_order) {
    const uint64_t each = numel / shape_.world;
    char* const mine = to + group_index() * each * element_bytes(dtype);
    group_->communicator().reduce_scatter(unit, mine, each, dtype, stream);
    if (replicated_ != nullptr) {
      replicated_->all_gather(mine, to, each, dtype, stream);
    }
    return;
  }
  const uint64_t count = shape_.shard_numel(numel);
  const void* from = unit;
  if (sharded_ != nullptr) {
    sharded_->reduce_scatter(unit, to, count, dtype, stream);
    from = to;
  }
  if (replicated_ != nullptr) {
    replicated_->all_reduce(from, to, count, dtype, STRATA_REDUCE_SUM, stream);
  }
}

}  // namespace strata::sdk
