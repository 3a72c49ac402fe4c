#include "strata/sdk/shard_mesh.h"

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

void ShardMesh::gather(const void* shard, void* unit, uint64_t numel) {
  const uint64_t each = shape_.piece(numel, 0, 0).numel;
  const auto* from = static_cast<const float*>(shard);
  auto* to = static_cast<float*>(unit);
  const bool is_several = shape_.pieces() > 1;
  if (is_several) sharded_->group_start();
  for (uint32_t i = 0; i < shape_.pieces(); ++i) {
    sharded_->all_gather(from + i * each, to + shape_.piece(numel, 0, i).offset, each,
                         STRATA_DTYPE_F32, group_->stream());
  }
  if (is_several) sharded_->group_end();
}

// See Note [Sums in rank order across groups].
void ShardMesh::reduce(const void* unit, void* shard, uint64_t numel) {
  auto* to = static_cast<float*>(shard);
  const strata_stream_t stream = group_->stream();
  if (shape_.sums_in_rank_order) {
    const uint64_t each = numel / shape_.world;
    float* const mine = to + group_index() * each;
    group_->communicator().reduce_scatter(unit, mine, each, STRATA_DTYPE_F32, stream);
    if (replicated_ != nullptr) {
      replicated_->all_gather(mine, to, each, STRATA_DTYPE_F32, stream);
    }
    return;
  }
  const uint64_t count = shape_.shard_numel(numel);
  const void* from = unit;
  if (sharded_ != nullptr) {
    sharded_->reduce_scatter(unit, to, count, STRATA_DTYPE_F32, stream);
    from = to;
  }
  if (replicated_ != nullptr) {
    replicated_->all_reduce(from, to, count, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, stream);
  }
}

}  // namespace strata::sdk
