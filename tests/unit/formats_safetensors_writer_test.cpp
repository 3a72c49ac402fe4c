#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <numeric>
#include <random>

#include "strata/formats/safetensors.h"
#include "tests/unit/temporary_folder.h"

namespace strata::formats {
namespace {

using test::content_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<TensorSpec> specs_of(const SafetensorsFile& file) {
  std::vector<TensorSpec> specs;
  for (const TensorInfo& tensor : file.tensors())
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  return specs;
}

TEST(SafetensorsWriter, WritesTheBytesOfTheReferenceImplementationInWhateverOrder) {
  TemporaryFolder folder;
  const std::string reference = STRATA_SOURCE_DIR "/tests/data/safetensors/reference.safetensors";
  const auto file = SafetensorsFile::open(reference);
  ASSERT_TRUE(file.ok());
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    std::vector<TensorSpec> specs = specs_of(*file);
    std::shuffle(specs.begin(), specs.end(), random);
    auto writer = SafetensorsWriter::create(folder.file("f"), specs);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    std::shuffle(specs.begin(), specs.end(), random);
    for (const TensorSpec& spec : specs) {
      const auto bytes = file->data(*file->find(spec.name));
      const size_t half = random() % (bytes.size() + 1);
      ASSERT_TRUE(writer->write(spec.name, bytes.first(half)).ok());
      ASSERT_TRUE(writer->write(spec.name, bytes.subspan(half)).ok());
    }
    ASSERT_TRUE(writer->finish().ok());
    EXPECT_EQ(content_of(folder.file("f")), content_of(reference));
    EXPECT_EQ(std::filesystem::file_size(folder.file("f")), writer->file_bytes());
  }
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(SafetensorsWriter, GivesTensorsOfEveryTypeBack) {
  TemporaryFolder folder;
  std::vector<TensorSpec> specs;
  for (int d = 0; d <= static_cast<int>(DType::kU64); ++d)
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, std::vector<int64_t>{3, 5}, std::vector<int64_t>{2, 0}})
      specs.push_back({"t" + std::to_string(specs.size()), static_cast<DType>(d), shape});
  auto writer = SafetensorsWriter::create(folder.file("f"), specs, {{"step", "7"}});
  ASSERT_TRUE(writer.ok());
  std::mt19937 random(1);
  std::map<std::string, std::vector<std::byte>> written;
  for (const TensorSpec& spec : specs) {
    const int64_t numel =
        std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<std::byte>& bytes = written[spec.name];
    bytes.resize(numel * dtype_size(spec.dtype));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    ASSERT_TRUE(writer->write(spec.name, bytes).ok());
  }
  ASSERT_TRUE(writer->finish().ok());
  const auto file = SafetensorsFile::open(folder.file("f"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata(), (std::map<std::string, std::string>{{"step", "7"}}));
  for (const TensorSpec& spec : specs) {
    const TensorInfo* tensor = file->find(spec.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, spec.dtype);
    EXPECT_EQ(tensor->shape, spec.shape);
    const auto bytes = file->data(*tensor);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), written[spec.name].begin(),
                           written[spec.name].end()));
  }
}

TEST(SafetensorsWriter, WritesAFileWithoutTensors) {
  TemporaryFolder folder;
  auto writer = SafetensorsWriter::create(folder.file("f"), {});
  ASSERT_TRUE(writer.ok() && writer->finish().ok());
  const auto file = SafetensorsFile::open(folder.file("f"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->tensors(), IsEmpty());
}

TEST(SafetensorsWriter, RefusesDeclarationsThatMakeNoFile) {
  TemporaryFolder folder;
  const auto says = [&](std::vector<TensorSpec> specs) {
    return SafetensorsWriter::create(folder.file("f"), std::move(specs)).status().message();
  };
  EXPECT_THAT(says({{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}, {"a", DType::kU8, {1}}}),
              AllOf(HasSubstr("'a'"), HasSubstr("twice"), HasSubstr("HINT")));
  EXPECT_THAT(says({{"a", DType::kF32, {2, -3}}}), AllOf(HasSubstr("'a'"), HasSubstr("[2, -3]")));
  EXPECT_THAT(says({{"a", DType::kF32, {INT64_MAX, 2}}}), HasSubstr("2^63"));
  EXPECT_THAT(says({{"a", DType::kU8, {INT64_MAX}}, {"b", DType::kU8, {INT64_MAX}}}),
              HasSubstr("'b'"));
  EXPECT_THAT(says({{"__metadata__", DType::kU8, {1}}}), HasSubstr("__metadata__"));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(SafetensorsWriter, FinishesOnlyWhenEveryTensorIsWhole) {
  TemporaryFolder folder;
  {
    auto writer = SafetensorsWriter::create(folder.file("f"),
                                            {{"a", DType::kU8, {4}}, {"b", DType::kU8, {1}}});
    ASSERT_TRUE(writer.ok());
    const std::byte bytes[5] = {};
    EXPECT_THAT(writer->write("a", bytes).message(),
                AllOf(HasSubstr("'a'"), HasSubstr("4 bytes"), HasSubstr("5 more")));
    EXPECT_EQ(writer->write("c", bytes).code(), Code::kNotFound);
    ASSERT_TRUE(writer->write("b", {bytes, 1}).ok());
    ASSERT_TRUE(writer->write("a", {bytes, 3}).ok());
    const Status status = writer->finish();
    EXPECT_EQ(status.code(), Code::kState);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'a'"), HasSubstr("3 of its 4")));
    EXPECT_FALSE(std::filesystem::exists(folder.file("f")));
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(SafetensorsWriter, LeavesNothingBehindWhereItCannotWrite) {
  TemporaryFolder folder;
  folder.write("file", "x");
  const std::vector<TensorSpec> specs{{"a", DType::kF32, {1000}}};
  for (const std::string& path :
       {folder.file("missing/f"), folder.file("file/f"), std::string("/proc/strata.safetensors")}) {
    const auto writer = SafetensorsWriter::create(path, specs);
    EXPECT_EQ(writer.status().code(), Code::kIo);
    EXPECT_THAT(writer.status().message(), AllOf(HasSubstr(path), HasSubstr("HINT")));
  }
  EXPECT_THAT(folder.names(), ElementsAre("file"));
}

TEST(SafetensorsWriter, NoticesAFullDiskBeforeTheWork) {
  TemporaryFolder folder;
  folder.write("f", "old");
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit limit{2000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto writer = SafetensorsWriter::create(folder.file("f"), {{"a", DType::kF32, {1000}}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(writer.status().code(), Code::kIo);
  EXPECT_EQ(content_of(folder.file("f")), "old");
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

}  // namespace
}  // namespace strata::formats
