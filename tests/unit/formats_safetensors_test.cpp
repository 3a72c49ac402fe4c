#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
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

const std::string kReference = STRATA_SOURCE_DIR "/tests/data/safetensors/reference.safetensors";

// The bytes of a file with this header and so many bytes of data.
std::string file_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

template <typename T>
std::vector<T> values(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.data(*file.find(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(SafetensorsFile, ReadsWhatTheReferenceImplementationWrote) {
  const auto file = SafetensorsFile::open(kReference);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 9u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_THAT(values<float>(*file, "b"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values<int64_t>(*file, "a"), ElementsAre(0, 1, 2));
  EXPECT_THAT(values<float>(*file, "s"), ElementsAre(1.5f));
  EXPECT_THAT(values<double>(*file, "\u00fc\"\\x"), ElementsAre(0, 1));
  EXPECT_THAT(values<uint8_t>(*file, "flag"), ElementsAre(1, 0));
  EXPECT_THAT(file->find("b")->shape, ElementsAre(2, 3));
  EXPECT_EQ(describe(*file->find("e")), "F32 [0, 4]");
  EXPECT_EQ(file->find("e")->numel, 0);
  EXPECT_EQ(describe(*file->find("s")), "F32 []");
  for (const TensorInfo& tensor : file->tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file->data(tensor).data()) % dtype_size(tensor.dtype), 0u)
        << tensor.name;
}

TEST(SafetensorsFile, ReadsPartsOfATensor) {
  auto opened = SafetensorsFile::open(kReference);
  ASSERT_TRUE(opened.ok());
  const SafetensorsFile file = std::move(*opened);
  for (int64_t first = 0; first <= 6; ++first)
    for (int64_t count = 0; first + count <= 6; ++count) {
      std::vector<float> part(count, -1);
      ASSERT_TRUE(file.read("b", first, std::as_writable_bytes(std::span(part))).ok());
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(part[i], static_cast<float>(first + i));
    }
  float two[2];
  const auto out = std::as_writable_bytes(std::span(two));
  EXPECT_THAT(file.read("b", 5, out).message(), AllOf(HasSubstr("'b'"), HasSubstr("[5, 5 + 2)"),
                                                      HasSubstr("has 6"), HasSubstr("HINT")));
  EXPECT_EQ(file.read("b", -1, out).code(), Code::kInvalidArgument);
  EXPECT_EQ(file.read("b", INT64_MAX, out).code(), Code::kInvalidArgument);
  EXPECT_EQ(file.read("none", 0, out).code(), Code::kNotFound);
}

TEST(SafetensorsFile, NoticesThatItWasCutOffWhileItIsRead) {
  TemporaryFolder folder;
  const std::string path = folder.write("f", content_of(kReference));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path, 600);
  float value[6];
  const Status status = file->read("b", 0, std::as_writable_bytes(std::span(value)));
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'b'"), HasSubstr("end of file")));
}

TEST(SafetensorsFile, NamesTheNearestTensorWhenOneIsMissing) {
  TemporaryFolder folder;
  const std::string path = folder.write(
      "f", file_bytes(R"({"wte.weight":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->require("wte.wieght").status().message(), HasSubstr("it has 'wte.weight'"));
  EXPECT_THAT(file->require("lm_head").status().message(), HasSubstr("of another model"));
}

TEST(SafetensorsFile, IsRefusedWhereverItIsCutOff) {
  TemporaryFolder folder;
  const std::string whole = content_of(kReference);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto file = SafetensorsFile::open(folder.write("f", whole.substr(0, size)));
    ASSERT_FALSE(file.ok()) << size;
    ASSERT_THAT(file.status().message(), AllOf(HasSubstr(folder.file("f")), HasSubstr("HINT")));
  }
}

TEST(SafetensorsFile, IsNeverReadOutsideOfItsBytesWhateverTheyAre) {
  TemporaryFolder folder;
  const std::string whole = content_of(kReference);
  std::mt19937 random(11);
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    for (unsigned n = random() % 4 + 1; n > 0; --n)
      bytes[random() % bytes.size()] =
          random() % 2 ? "0123456789[]{},:\"-"[random() % 18] : static_cast<char>(random());
    const auto file = SafetensorsFile::open(folder.write("f", bytes));
    if (!file.ok()) continue;
    for (const TensorInfo& tensor : file->tensors())
      for (const std::byte byte : file->data(tensor)) sum += static_cast<uint64_t>(byte);
  }
  EXPECT_GT(sum, 0u);
}

struct BadFile {
  const char* name;
  std::string bytes;
  Code code;
  std::vector<std::string> says;
};

class SafetensorsRefusal : public testing::TestWithParam<BadFile> {};

TEST_P(SafetensorsRefusal, NamesFileTensorAndValues) {
  TemporaryFolder folder;
  const auto file = SafetensorsFile::open(folder.write("f", GetParam().bytes));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), GetParam().code);
  EXPECT_THAT(file.status().message(), AllOf(HasSubstr(folder.file("f")), HasSubstr("HINT: ")));
  for (const std::string& part : GetParam().says)
    EXPECT_THAT(file.status().message(), HasSubstr(part));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data_bytes) {
  return file_bytes("{" + entry("w", dtype, shape, offsets) + "}", data_bytes);
}

std::string two(const std::string& name, const std::string& a, const std::string& b, size_t bytes) {
  return file_bytes("{" + entry("a", "U8", "[4]", a) + "," + entry(name, "U8", "[4]", b) + "}",
                    bytes);
}

constexpr Code kBad = Code::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    Each, SafetensorsRefusal,
    testing::Values(
        BadFile{"Empty", "", kBad, {"0 bytes"}}, BadFile{"Short", "1234567", kBad, {"7 bytes"}},
        BadFile{"HeaderBeyondFile", std::string("\x10\0\0\0\0\0\0\0{}", 10), kBad, {"16", "2"}},
        BadFile{"HugeHeader", std::string(8, '\x7f'), kBad, {"9187201950435737471", "100000000"}},
        BadFile{"NotJson", file_bytes("{\"w\":", 0), kBad, {"header", "line 1"}},
        BadFile{"NotAnObject", file_bytes("[1]", 0), kBad, {"array"}},
        BadFile{"EntryNotAnObject", file_bytes(R"({"w":3})", 0), kBad, {"'w'"}},
        BadFile{"UnknownDtype",
                one("F31", "[1]", "[0,4]", 4),
                Code::kUnsupported,
                {"'w'", "'F31'", "BF16"}},
        BadFile{"NoDtype",
                file_bytes(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4),
                kBad,
                {"'w'", "dtype"}},
        BadFile{"UnknownField",
                file_bytes(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1),
                kBad,
                {"'w'", "'x'"}},
        BadFile{"NegativeShape", one("F32", "[2,-1]", "[0,4]", 4), kBad, {"'w'", "[2,-1]"}},
        BadFile{"FractionInShape", one("F32", "[1.5]", "[0,4]", 4), kBad, {"'w'", "[1.5]"}},
        BadFile{"ShapeOverflow",
                one("U8", "[4294967296,4294967296]", "[0,4]", 4),
                kBad,
                {"'w'", "2^63"}},
        BadFile{"BytesOverflow",
                one("F32", "[4611686018427387904]", "[0,4]", 4),
                kBad,
                {"'w'", "4611686018427387904"}},
        BadFile{"WrongSize", one("F32", "[3]", "[0,8]", 8), kBad, {"'w'", "8 bytes", "12"}},
        BadFile{"OffsetsBackwards", one("F32", "[1]", "[4,0]", 4), kBad, {"'w'", "[4, 0)"}},
        BadFile{"OffsetsOutOfRange", one("F32", "[2]", "[0,8]", 4), kBad, {"'w'", "[0, 8)", "4"}},
        BadFile{"NegativeOffset", one("F32", "[1]", "[-4,0]", 4), kBad, {"'w'", "data_offsets"}},
        BadFile{"HugeOffset",
                one("U8", "[1]", "[18446744073709551616,18446744073709551617]", 4),
                kBad,
                {"'w'", "data_offsets"}},
        BadFile{"ThreeOffsets", one("U8", "[1]", "[0,1,1]", 1), kBad, {"'w'", "data_offsets"}},
        BadFile{"Overlap", two("b", "[0,4]", "[2,6]", 6), kBad, {"'a'", "'b'", "overlap"}},
        BadFile{"SameBytes", two("b", "[0,4]", "[0,4]", 4), kBad, {"'a'", "'b'", "overlap"}},
        BadFile{"Gap", two("b", "[0,4]", "[5,9]", 9), kBad, {"'a'", "'b'", "gap", "5", "4"}},
        BadFile{"GapAtBegin", one("U8", "[1]", "[1,2]", 2), kBad, {"'w'", "gap"}},
        BadFile{"BytesLeft", one("U8", "[1]", "[0,1]", 3), kBad, {"3 bytes", "hold 1"}},
        BadFile{"NameTwice", two("a", "[0,4]", "[4,8]", 8), kBad, {"'a'", "twice"}},
        BadFile{"MetadataNotText",
                file_bytes(R"({"__metadata__":{"step":3}})", 0),
                kBad,
                {"__metadata__", "'step'", "number"}}),
    [](const auto& info) { return info.param.name; });

TEST(SafetensorsFile, SaysWhenItIsMissingOrAFolder) {
  TemporaryFolder folder;
  EXPECT_EQ(SafetensorsFile::open(folder.file("none")).status().code(), Code::kNotFound);
  EXPECT_EQ(SafetensorsFile::open(folder.path()).status().code(), Code::kInvalidArgument);
}

class SafetensorsFolderTest : public testing::Test {
 protected:
  void write_shard(const std::string& file, const std::string& tensor, char value) {
    auto writer = SafetensorsWriter::create(folder_.file(file), {{tensor, DType::kU8, {2}}});
    ASSERT_TRUE(writer.ok());
    const std::byte bytes[2] = {static_cast<std::byte>(value), static_cast<std::byte>(value + 1)};
    ASSERT_TRUE(writer->write(tensor, bytes).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  void write_index(const std::string& map) {
    folder_.write("model.safetensors.index.json",
                  R"({"metadata": {"total_size": 4}, "weight_map": )" + map + "}");
  }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolderTest, JoinsTheShardsOfAnIndex) {
  write_shard("model-00001-of-00002.safetensors", "a", 10);
  write_shard("model-00002-of-00002.safetensors", "b", 20);
  write_index(
      R"({"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"})");
  const auto weights = SafetensorsFolder::open(folder_.path());
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_THAT(weights->names(), ElementsAre("a", "b"));
  EXPECT_EQ((*weights->data("b"))[1], std::byte{21});
  std::byte byte;
  ASSERT_TRUE(weights->read("a", 1, {&byte, 1}).ok());
  EXPECT_EQ(byte, std::byte{11});
  EXPECT_THAT(weights->data("c").status().message(), HasSubstr("no tensor 'c'"));
  EXPECT_EQ(weights->file_of("a").path(), folder_.file("model-00001-of-00002.safetensors"));
}

TEST_F(SafetensorsFolderTest, TakesTheSingleFileFirstAndOpensAFileByItsPath) {
  write_shard("model.safetensors", "a", 10);
  write_index(R"({"b": "none.safetensors"})");
  for (const std::string& path : {folder_.path(), folder_.file("model.safetensors")}) {
    const auto weights = SafetensorsFolder::open(path);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    EXPECT_THAT(weights->names(), ElementsAre("a"));
  }
}

TEST_F(SafetensorsFolderTest, RefusesAnIndexThatDoesNotFit) {
  const auto says = [&] { return SafetensorsFolder::open(folder_.path()).status().message(); };
  EXPECT_THAT(says(), AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("HINT")));
  write_shard("x.safetensors", "a", 10);
  write_index(R"({"b": "x.safetensors"})");
  EXPECT_THAT(says(), AllOf(HasSubstr("'b'"), HasSubstr("'x.safetensors'"), HasSubstr("HINT")));
  write_index(R"({"b": "../x.safetensors"})");
  EXPECT_THAT(says(), AllOf(HasSubstr("'b'"), HasSubstr("../x.safetensors")));
  write_index(R"({"b": "missing.safetensors"})");
  EXPECT_THAT(says(), HasSubstr("missing.safetensors"));
  write_index("3");
  EXPECT_THAT(says(), HasSubstr("weight_map"));
}

}  // namespace
}  // namespace strata::formats
