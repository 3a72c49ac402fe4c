// Sharded checkpoints: written by one division into ranks, read by another; complete or absent.
#include "strata/checkpoint/checkpoint.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "strata/model/unit_spec.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/strata-checkpoint-XXXXXX";
    output_dir_ = mkdtemp(name);
    spec_.units = {{"a", {{"a.w", {5, 40}}, {"a.b", {7}}}}, {"b", {{"b.w", {130}}}}};
    spec_.order = {0, 1};
  }
  void TearDown() override { fs::remove_all(output_dir_); }

  std::vector<model::FlatLayout> layouts(int world) const {
    std::vector<model::FlatLayout> out;
    for (const model::UnitSpec& unit : spec_.units) {
      out.push_back(model::make_flat_layout(unit, 64, 64 * world));
    }
    return out;
  }

  // Writes masters counting up from 0 in each unit, cut in equal slices.
  void write(int64_t step, int world, int keep = 0) {
    fs::create_directories(part_folder_of(output_dir_, step));
    const auto all = layouts(world);
    for (int rank = 0; rank < world; ++rank) {
      std::vector<std::vector<float>> memory;
      std::vector<OwnedSlice> slices;
      for (size_t u = 0; u < all.size(); ++u) {
        const int64_t numel = all[u].numel / world;
        memory.emplace_back(static_cast<size_t>(numel));
        std::iota(memory.back().begin(), memory.back().end(), static_cast<float>(rank * numel));
        slices.push_back({spec_.units[u].name, rank * numel, numel, "master", nullptr});
      }
      for (size_t u = 0; u < slices.size(); ++u) slices[u].data = memory[u].data();
      ASSERT_TRUE(write_rank_file(part_folder_of(output_dir_, step), rank, slices).ok());
    }
    const Status status =
        commit(output_dir_, step, world, spec_, all, {{"sampler", {{"epoch", 3}}}}, keep);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  std::string output_dir_;
  model::ModelSpec spec_;
};

TEST_F(CheckpointTest, IsReplacedByOneOfTheSameStep) {
  write(20, 2);
  write(20, 1);
  const auto reader = Reader::open(output_dir_ + "/latest");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->world_size(), 1);
  EXPECT_FALSE(fs::exists(part_folder_of(output_dir_, 20)));
  EXPECT_FALSE(fs::exists(folder_of(output_dir_, 20) + "/rank-00001.safetensors"));
}

TEST_F(CheckpointTest, OfALaterStepOfAnEarlierRunIsNotCountedAmongTheNewest) {
  write(500, 1);
  write(10, 1, 1);
  write(20, 1, 1);
  EXPECT_TRUE(fs::exists(folder_of(output_dir_, 500)));
  EXPECT_FALSE(fs::exists(folder_of(output_dir_, 10)));
  const auto reader = Reader::open(output_dir_ + "/latest");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->step(), 20);
}

TEST_F(CheckpointTest, ThatWasNotFinishedIsCleared) {
  write(20, 1);
  fs::create_directories(part_folder_of(output_dir_, 30));
  fs::create_directories(output_dir_ + "/mine.part");
  discard_unfinished(output_dir_);
  EXPECT_FALSE(fs::exists(part_folder_of(output_dir_, 30)));
  EXPECT_TRUE(fs::exists(output_dir_ + "/mine.part"));
  EXPECT_TRUE(Reader::open(output_dir_ + "/latest").ok());
}

TEST_F(CheckpointTest, WithADamagedManifestIsRefusedInWords) {
  write(20, 2);
  const std::string path = folder_of(output_dir_, 20) + "/manifest.json";
  nlohmann::json good;
  std::ifstream(path) >> good;
  const auto refusal = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    std::ofstream(path) << bad;
    const auto reader = Reader::open(folder_of(output_dir_, 20));
    if (!reader.ok()) return reader.status().message();
    const Status same = reader->check_model(spec_, layouts(2));
    std::vector<float> all(256);
    return (same.ok() ? reader->read("b", "master", 0, 256, all.data()) : same).message();
  };
  EXPECT_THAT(refusal("/world_size", 1), HasSubstr("lacks elements from 128 of 'master'"));
  for (const int64_t world : {int64_t{0}, int64_t{-1}, (int64_t{1} << 32) + 2}) {
    EXPECT_THAT(refusal("/world_size", world), HasSubstr("HINT"));
  }
  EXPECT_THAT(refusal("/step", -1), HasSubstr("step -1"));
  EXPECT_THAT(refusal("/units", {1, 2}), HasSubstr("HINT"));
  EXPECT_THAT(refusal("/units/0/name", 3), HasSubstr("'name' is 3"));
  EXPECT_THAT(refusal("/units/1/parameters", "x"), HasSubstr("HINT"));
  EXPECT_THAT(refusal("/units/1/numel", "x"), HasSubstr("'numel'"));
}

TEST_F(CheckpointTest, IsReadByAnyOtherDivision) {
  write(20, 2);
  const auto reader = Reader::open(output_dir_ + "/latest");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->step(), 20);
  EXPECT_EQ(reader->world_size(), 2);
  EXPECT_EQ(reader->state()["sampler"]["epoch"], 3);
  for (const int world : {1, 2, 3, 4}) {
    const auto wanted = layouts(world);
    ASSERT_TRUE(reader->check_model(spec_, wanted).ok());
    for (int rank = 0; rank < world; ++rank) {
      const int64_t numel = wanted[0].numel / world;
      std::vector<float> out(static_cast<size_t>(numel), -1);
      ASSERT_TRUE(reader->read("a", "master", rank * numel, numel, out.data()).ok());
      for (int64_t i = 0; i < numel; ++i) {
        const int64_t at = rank * numel + i;
        // Padding of this world that the writer's did not have is zero.
        const float expected = at < layouts(2)[0].numel ? static_cast<float>(at) : 0.0F;
        ASSERT_EQ(out[static_cast<size_t>(i)], expected) << "world " << world << " at " << at;
      }
    }
  }
}

TEST_F(CheckpointTest, KeepsTheNewestAndPointsLatestToIt) {
  write(10, 1, 2);
  write(20, 1, 2);
  write(100, 1, 2);
  EXPECT_FALSE(fs::exists(folder_of(output_dir_, 10)));
  EXPECT_TRUE(fs::exists(folder_of(output_dir_, 20)));
  EXPECT_EQ(fs::read_symlink(output_dir_ + "/latest").string(), "checkpoint-100");
}

TEST_F(CheckpointTest, WithoutManifestIsNotOne) {
  fs::create_directories(part_folder_of(output_dir_, 5));
  const auto reader = Reader::open(part_folder_of(output_dir_, 5));
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.status().message(), HasSubstr("not a complete checkpoint"));
}

TEST_F(CheckpointTest, WithoutARanksFileNamesIt) {
  write(20, 3);
  fs::remove(folder_of(output_dir_, 20) + "/rank-00001.safetensors");
  const auto reader = Reader::open(folder_of(output_dir_, 20));
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.status().message(), HasSubstr("rank-00001.safetensors"));
}

TEST_F(CheckpointTest, WithATruncatedFileNamesIt) {
  write(20, 2);
  const std::string file = folder_of(output_dir_, 20) + "/rank-00000.safetensors";
  fs::resize_file(file, fs::file_size(file) - 4);
  const auto reader = Reader::open(folder_of(output_dir_, 20));
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.status().message(), HasSubstr("rank-00000.safetensors"));
}

TEST_F(CheckpointTest, OfAnotherModelIsRefusedNamingTheUnit) {
  write(20, 1);
  const auto reader = Reader::open(folder_of(output_dir_, 20));
  ASSERT_TRUE(reader.ok());
  spec_.units[1].parameters[0].shape = {131};
  const Status status = reader->check_model(spec_, layouts(1));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("unit 1"));
}

TEST_F(CheckpointTest, AsksForAKindThatIsNotThere) {
  write(20, 1);
  const auto reader = Reader::open(folder_of(output_dir_, 20));
  ASSERT_TRUE(reader.ok());
  float out = 0;
  EXPECT_THAT(reader->read("a", "exp_avg", 0, 1, &out).message(), HasSubstr("no 'exp_avg'"));
}

TEST_F(CheckpointTest, DiscardLeavesEarlierOnesAlone) {
  write(20, 1);
  fs::create_directories(part_folder_of(output_dir_, 30));
  discard(output_dir_, 30);
  EXPECT_FALSE(fs::exists(part_folder_of(output_dir_, 30)));
  EXPECT_TRUE(Reader::open(output_dir_ + "/latest").ok());
}

}  // namespace
}  // namespace strata::checkpoint
