// The SDK's arithmetic: slices, padding, buckets.
#include <gtest/gtest.h>

#include "strata/sdk/buckets.h"
#include "strata/sdk/shard_mesh.h"
#include "strata/sdk/slices.h"

namespace strata::sdk {
namespace {

TEST(Slices, CoverAUnitOnceWithoutGaps) {
  for (const uint32_t world : {1u, 2u, 3u, 7u, 64u}) {
    const uint64_t numel = kAlignment * world * 5;
    uint64_t end = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const Slice slice = slice_of(numel, rank, world);
      EXPECT_EQ(slice.offset, end);
      EXPECT_EQ(slice.offset % kAlignment, 0u);
      EXPECT_EQ(slice.numel, numel / world);
      end += slice.numel;
    }
    EXPECT_EQ(end, numel);
  }
}

TEST(Slices, AreKnownAtCompileTime) {
  static_assert(slice_of(512, 3, 4).offset == 384);
  static_assert(round_up(0, 64) == 0 && round_up(1, 64) == 64 && round_up(128, 64) == 128);
  static_assert(sliced_layout(3).unit_multiple == 192);
  static_assert(sliced_layout(3).parameter_alignment == 64);
}

// Over the ranks of one group, the pieces of all shards cover a unit once; in rank order piece i of
// place j is what the world's reduce_scatter gives to the rank at place j of group i.
TEST(Meshes, CoverAUnitOnceInEachGroup) {
  for (const uint32_t world : {1u, 2u, 4u, 6u, 12u}) {
    for (uint32_t size = 1; size <= world; ++size) {
      if (world % size != 0) continue;
      for (const bool is_ordered : {true, false}) {
        const MeshShape shape{world, size, is_ordered};
        const uint64_t numel = kAlignment * world * 3;
        std::vector<int> covered(numel / kAlignment);
        for (uint32_t place = 0; place < size; ++place) {
          for (uint32_t i = 0; i < shape.pieces(); ++i) {
            const Slice piece = shape.piece(numel, place, i);
            EXPECT_EQ(piece.numel * shape.pieces(), shape.shard_numel(numel));
            if (is_ordered) {
              EXPECT_EQ(piece.offset, slice_of(numel, i * size + place, world).offset);
            }
            for (uint64_t at = 0; at < piece.numel; at += kAlignment) {
              ++covered[(piece.offset + at) / kAlignment];
            }
          }
        }
        EXPECT_EQ(covered, std::vector<int>(covered.size(), 1)) << world << " in " << size;
      }
    }
  }
}

TEST(Meshes, SendTheSameBytesInEitherOrderOfSums) {
  // 6 ranks in groups of 3: (1 + 1/3 - 2/6) x 384 elements.
  static_assert(MeshShape{6, 3, true}.reduce_sent(384) == 384);
  static_assert(MeshShape{6, 3, false}.reduce_sent(384) == 384);
  static_assert(MeshShape{4, 4, true}.reduce_sent(256) == 192);
  static_assert(MeshShape{4, 1, true}.reduce_sent(256) == 384);
  static_assert(MeshShape{4, 1, false}.reduce_sent(256) == 384);
  static_assert(MeshShape{6, 3, true}.gather_sent(384) == 256);
}

strata_unit_t unit_of(const std::vector<strata_parameter_t>& parameters) {
  strata_unit_t unit{};
  unit.struct_size = sizeof(unit);
  unit.name = "unit";
  unit.parameters = parameters.data();
  unit.parameter_count = static_cast<uint32_t>(parameters.size());
  return unit;
}

std::vector<strata_parameter_t> parameters_of(const std::vector<uint64_t>& numels) {
  std::vector<strata_parameter_t> parameters;
  for (const uint64_t numel : numels) {
    strata_parameter_t parameter{};
    parameter.struct_size = sizeof(parameter);
    parameter.numel = numel;
    parameters.push_back(parameter);
  }
  return parameters;
}

TEST(Padding, PutsParametersAtTheAlignmentAndUnitsAtTheirMultiple) {
  const auto padded = [](const std::vector<uint64_t>& numels, uint32_t world) {
    const std::vector<strata_parameter_t> parameters = parameters_of(numels);
    return padded_numel(unit_of(parameters), world);
  };
  EXPECT_EQ(padded({100, 3, 64}, 2), 256u);  // at 0, 128, 192
  EXPECT_EQ(padded({64}, 1), 64u);
  EXPECT_EQ(padded({64}, 3), 192u);
  EXPECT_EQ(padded({1, 0, 1}, 1), 128u);  // an empty parameter has a place and no length
  EXPECT_EQ(padded({}, 4), 0u);
}

using Assigned = std::vector<uint32_t>;

TEST(Buckets, AreClosedByTheUnitThatReachesTheirCap) {
  EXPECT_EQ(assign_buckets({3, 1, 1, 4, 9, 1}, 2, 5), (Assigned{0, 1, 1, 1, 2, 3}));
  EXPECT_EQ(assign_buckets({5, 5, 5}, 5, 10), (Assigned{0, 1, 1}));
}

TEST(Buckets, HaveAFirstCapOfTheirOwn) {
  EXPECT_EQ(assign_buckets({1, 1, 1, 1}, 1, 3), (Assigned{0, 1, 1, 1}));
  EXPECT_EQ(assign_buckets({1, 1, 1, 1}, 100, 1), (Assigned{0, 0, 0, 0}));
}

TEST(Buckets, HoldOneUnitEachIfTheCapIsZero) {
  EXPECT_EQ(assign_buckets({7, 7, 7}, 0, 0), (Assigned{0, 1, 2}));
}

TEST(Buckets, OfNoUnitsAreNone) { EXPECT_TRUE(assign_buckets({}, 1, 1).empty()); }

}  // namespace
}  // namespace strata::sdk
