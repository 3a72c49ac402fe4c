#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "strata/formats/file.h"
#include "strata/formats/hash.h"
#include "strata/formats/json.h"
#include "tests/unit/temporary_folder.h"

namespace strata::formats {
namespace {

using test::content_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Files of this process cannot grow beyond `bytes`: how a full disk looks to write().
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &old_), 0);
    const rlimit limit{bytes, old_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old_), 0);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  sighandler_t old_handler_;
};

TEST(File, GivesItsContentBack) {
  TemporaryFolder folder;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 1000000}) {
    std::string content(size, '\0');
    std::mt19937 random(7);
    for (char& c : content) c = static_cast<char>(random());
    ASSERT_TRUE(write_file_atomically(folder.file("f"), content).ok());
    const auto back = read_file(folder.file("f"));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, content);
  }
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(File, OfProcIsReadToItsEnd) {
  const auto status = read_file("/proc/self/status");
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_THAT(*status, HasSubstr("VmRSS"));
}

TEST(File, SaysWhyItCannotBeRead) {
  TemporaryFolder folder;
  const auto missing = read_file(folder.file("none"));
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), AllOf(HasSubstr(folder.file("none")), HasSubstr("HINT")));
  const auto a_folder = read_file(folder.path());
  EXPECT_EQ(a_folder.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(a_folder.status().message(), HasSubstr("not a folder"));
}

TEST(File, IsNoPipeAndNoDevice) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder.file("pipe"), std::string("/dev/zero")}) {
    const auto refused = read_file(path);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), AllOf(HasSubstr(path), HasSubstr("HINT")));
  }
}

TEST(FolderLock, IsHeldByOneAtATime) {
  TemporaryFolder folder;
  const auto patience = std::chrono::milliseconds(30);
  {
    const auto first = FolderLock::take(folder.path(), patience);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_THAT(FolderLock::take(folder.path(), patience).status().message(),
                AllOf(HasSubstr(folder.path()), HasSubstr("another process")));
  }
  EXPECT_TRUE(FolderLock::take(folder.path(), patience).ok());
  EXPECT_THAT(folder.names(), ElementsAre());
}

TEST(File, IsReadableAsTheUserMaskAllows) {
  TemporaryFolder folder;
  const mode_t old = ::umask(022);
  ASSERT_TRUE(write_file_atomically(folder.file("f"), "x").ok());
  ::umask(old);
  struct stat info {};
  ASSERT_EQ(::stat(folder.file("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST(File, LeavesTheOldOneWhenTheDiskIsFull) {
  TemporaryFolder folder;
  folder.write("f", "old");
  {
    FileSizeLimit limit(1000);
    const Status status = write_file_atomically(folder.file("f"), std::string(2000, 'x'));
    EXPECT_EQ(status.code(), Code::kIo);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(folder.file("f")), HasSubstr("HINT")));
    const auto reserved = AtomicFile::create(folder.file("f"), 2000);
    EXPECT_EQ(reserved.status().code(), Code::kIo);
    EXPECT_THAT(reserved.status().message(), HasSubstr("reserve 2000 bytes"));
  }
  EXPECT_EQ(content_of(folder.file("f")), "old");
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(File, IsNotWrittenWhereItCannotBe) {
  TemporaryFolder folder;
  folder.write("file", "x");
  std::filesystem::create_directory(folder.file("folder"));
  for (const std::string& path : {folder.file("missing/f"), folder.file("file/f"),
                                  std::string("/proc/strata_f"), folder.file("folder")}) {
    const Status status = write_file_atomically(path, "y");
    EXPECT_EQ(status.code(), Code::kIo) << path;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr("HINT")));
  }
  EXPECT_THAT(folder.names(), ElementsAre("file", "folder"));
}

TEST(File, ThatIsNotCommittedLeavesNothing) {
  TemporaryFolder folder;
  {
    auto file = AtomicFile::create(folder.file("f"), 100);
    ASSERT_TRUE(file.ok());
    const auto moved = std::move(*file);
    EXPECT_EQ(folder.names().size(), 1u);
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(Hash64, IsXxh3AndDoesNotDependOnTheParts) {
  EXPECT_EQ(hash64_hex(""), "2d06800538d394c2");
  EXPECT_EQ(hash64_hex("a"), "e6c632b61e964e1f");
  std::string text(100000, '\0');
  std::mt19937 random(3);
  for (char& c : text) c = static_cast<char>(random());
  Hash64 hash;
  for (size_t begin = 0; begin < text.size();) {
    const size_t size = std::min<size_t>(random() % 3000, text.size() - begin);
    hash.update(std::string_view(text).substr(begin, size));
    begin += size;
  }
  EXPECT_EQ(hash.hex(), hash64_hex(text));
  hash.update("x");
  EXPECT_EQ(hash.hex(), hash64_hex(text + "x"));
}

TEST(Json, GivesItsValueBack) {
  TemporaryFolder folder;
  const Json value{{"a", 1}, {"b", {1.5, "x\n\u00fc", nullptr, true}}, {"seed", UINT64_MAX}};
  for (const int indent : {-1, 2}) {
    ASSERT_TRUE(write_json(folder.file("v.json"), value, indent).ok());
    const auto back = read_json(folder.file("v.json"));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, value);
  }
}

TEST(Json, NamesTheFileAndThePlaceOfAMistake) {
  TemporaryFolder folder;
  const auto broken = read_json(folder.write("b.json", "{\n  \"a\": 1,\n  \"b\": tru\n}"));
  EXPECT_EQ(broken.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(broken.status().message(),
              AllOf(HasSubstr(folder.file("b.json")), HasSubstr("line 3"), HasSubstr("HINT")));
  EXPECT_THAT(parse_json("", "x").status().message(), HasSubstr("line 1, column 1"));
  EXPECT_FALSE(parse_json("{\"a\": \"\xff\"}", "x").ok());
  EXPECT_FALSE(parse_json("1e999", "x").ok());
  EXPECT_FALSE(parse_json("[1] 2", "x").ok());
}

TEST(Json, RefusesAKeyThatStandsTwiceInOneObject) {
  const auto twice = parse_json(R"({"a": {"b": 1, "c": 2, "b": 3}})", "f.json");
  EXPECT_THAT(twice.status().message(), AllOf(HasSubstr("f.json"), HasSubstr("'b'")));
  EXPECT_FALSE(parse_json(R"({"": 1, "": 2})", "f.json").ok());
  EXPECT_TRUE(parse_json(R"({"a": {"b": 1}, "b": [{"b": 1}, {"b": 2}]})", "f.json").ok());
}

TEST(Json, SaysWhichMemberIsMissingOrOfAnotherType) {
  const Json value{{"i", 3}, {"d", 1.5}, {"s", "x"}, {"n", nullptr}, {"u", UINT64_MAX}};
  EXPECT_EQ(*get_int(value, "i", "f"), 3);
  EXPECT_EQ(*get_double(value, "i", "f"), 3.0);
  EXPECT_EQ(*get_double(value, "d", "f"), 1.5);
  EXPECT_EQ(*get_string(value, "s", "f"), "x");
  EXPECT_EQ(*get_int_or(value, "none", 5, "f"), 5);
  EXPECT_EQ(*get_bool_or(value, "n", true, "f"), true);
  EXPECT_THAT(get_int(value, "d", "f").status().message(),
              AllOf(HasSubstr("f: 'd' is 1.5"), HasSubstr("integer")));
  EXPECT_THAT(get_int(value, "u", "f").status().message(), HasSubstr("18446744073709551615"));
  EXPECT_THAT(get_bool(value, "s", "f").status().message(), HasSubstr("\"x\""));
  EXPECT_THAT(get_string(value, "none", "f").status().message(), HasSubstr("'none' is missing"));
  EXPECT_THAT(get_int(Json(3), "i", "f").status().message(), HasSubstr("an object"));
  EXPECT_THAT(get_string_or(value, "i", "y", "f").status().message(), HasSubstr("a string"));
}

}  // namespace
}  // namespace strata::formats
