// Loading a plugin: the handshake, and one test per reason to refuse.
#include "strata/plugin/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/abi/fake_host.h"

namespace strata::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string built(const std::string& name) {
  return std::string(STRATA_TEST_PLUGINS) + "/libstrata_" + name + ".so";
}

class LoadingAPlugin : public ::testing::Test {
 protected:
  LoadingAPlugin() {
    folder_ =
        fs::temp_directory_path() / fs::path("strata_plugin_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  ~LoadingAPlugin() override { fs::remove_all(folder_); }

  Result<std::shared_ptr<PluginLibrary>> load(const std::string& file) {
    return PluginLibrary::load(file, host_.offer(), Closing::kAtEnd);
  }
  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }
  std::string read_built(const std::string& name) {
    std::ifstream file(built(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect_refusal(const std::string& file, Code code, const std::string& text) {
    const auto result = load(file);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status().message();
    EXPECT_THAT(result.status().message(), AllOf(HasSubstr(file), HasSubstr(text)));
  }

  test::FakeHost host_;
  fs::path folder_;
};

TEST_F(LoadingAPlugin, AcceptsOneWrittenInCAlone) {
  const auto library = load(built("plain_c"));
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ((*library)->id(), "strata.test.plain_c");
  EXPECT_EQ((*library)->version(), "0.1.0");
  EXPECT_EQ((*library)->abi_built(), "0.1");
  EXPECT_EQ((*library)->abi_required(), "0.1");
  EXPECT_EQ((*library)->strategies(), std::vector<std::string>{"plain_c"});
  EXPECT_TRUE((*library)->options("plain_c")->empty());
  EXPECT_EQ((*library)->describe("plain_c")->max_world, 1u);
}

TEST_F(LoadingAPlugin, GivesTheSameObjectForTheSameFile) {
  const auto first = load(built("plain_c"));
  fs::create_symlink(built("plain_c"), folder_ / "libstrata_link.so");
  const auto second = load((folder_ / "libstrata_link.so").string());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
}

TEST_F(LoadingAPlugin, TakesARelativePath) {
  const auto library = load(fs::relative(built("plain_c")).string());
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_TRUE(fs::path((*library)->path()).is_absolute());
}

TEST_F(LoadingAPlugin, ReallyClosesInTests) {
  ASSERT_TRUE(load(built("plain_c")).ok());
  EXPECT_EQ(dlopen(built("plain_c").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST_F(LoadingAPlugin, NeverClosesInProduction) {
  const std::string copy = write("libstrata_kept.so", read_built("plain_c"));
  static test::FakeHost host;
  ASSERT_TRUE(PluginLibrary::load(copy, host.offer()).ok());
  void* again = dlopen(copy.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(again, nullptr);
  dlclose(again);
}

TEST_F(LoadingAPlugin, NeverCallsOneAgainThatItRefused) {
  const std::string copy = write("libstrata_refused.so", read_built("bad_null_slot"));
  static test::FakeHost host;
  const auto first = PluginLibrary::load(copy, host.offer());
  ASSERT_FALSE(first.ok());
  void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const int* calls = static_cast<int*>(dlsym(library, "plain_c_calls"));
  ASSERT_NE(calls, nullptr);
  const int before = *calls;
  const auto second = PluginLibrary::load(copy, host.offer());
  EXPECT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(), first.status().message());
  EXPECT_EQ(*calls, before);
  dlclose(library);
}

// ---- files that are no libraries ----

TEST_F(LoadingAPlugin, RefusesAMissingFile) {
  expect_refusal((folder_ / "none.so").string(), Code::kNotFound, "no such file");
}

TEST_F(LoadingAPlugin, RefusesATextFile) {
  expect_refusal(write("text.so", "hello world, this is text"), Code::kInvalidArgument,
                 "begins with 'hello world,'");
}

TEST_F(LoadingAPlugin, RefusesAnEmptyFile) {
  expect_refusal(write("empty.so", ""), Code::kInvalidArgument, "is empty");
}

TEST_F(LoadingAPlugin, RefusesAFolder) {
  expect_refusal(folder_.string(), Code::kInvalidArgument, "is a directory");
}

TEST_F(LoadingAPlugin, RefusesAnotherMachine) {
  std::string content = read_built("plain_c");
  content[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_RISCV);
  content[offsetof(Elf64_Ehdr, e_machine) + 1] = 0;
  expect_refusal(write("riscv.so", content), Code::kUnsupported, "64-bit RISC-V");
}

TEST_F(LoadingAPlugin, RefusesATruncatedFile) {
  const std::string content = read_built("plain_c");
  expect_refusal(write("half.so", content.substr(0, content.size() / 3)), Code::kInvalidArgument,
                 "is truncated");
  expect_refusal(write("head.so", content.substr(0, 40)), Code::kInvalidArgument, "is truncated");
}

TEST_F(LoadingAPlugin, RefusesAnObjectFile) {
  std::string content = read_built("plain_c");
  content[offsetof(Elf64_Ehdr, e_type)] = static_cast<char>(ET_REL);
  expect_refusal(write("object.so", content), Code::kInvalidArgument, "is an object file");
}

TEST_F(LoadingAPlugin, SaysWhatTheLoaderSays) {
  expect_refusal(built("bad_undefined"), Code::kInvalidArgument, "a_symbol_of_nobody");
}

// ---- libraries that break the handshake ----

struct Fault {
  const char* plugin;
  Code code;
  const char* text;
};

class AHandshake : public LoadingAPlugin, public ::testing::WithParamInterface<Fault> {};

TEST_P(AHandshake, IsRefusedByItsFault) {
  expect_refusal(built(GetParam().plugin), GetParam().code, GetParam().text);
  // Refused again, not loaded half.
  EXPECT_FALSE(load(built(GetParam().plugin)).ok());
}

constexpr Code kBroken = Code::kInvalidArgument;
INSTANTIATE_TEST_SUITE_P(
    OfEachRule, AHandshake,
    ::testing::Values(
        Fault{"bad_no_entry", kBroken, "without the symbol 'strata_plugin_entry_v1'"},
        Fault{"bad_refuses", Code::kUnsupported, "refuses this host: plain_c: it works on Sundays"},
        Fault{"bad_refuses_silently", Code::kUnsupported, "says no reason"},
        Fault{"bad_long_text", kBroken, "wrote past the 2048 bytes of the error buffer"},
        Fault{"bad_magic", kBroken, "magic is 0x"}, Fault{"bad_size", kBroken, "bytes, not"},
        Fault{"bad_major", Code::kUnsupported, "is built for ABI 1."},
        Fault{"bad_requires_newer", Code::kUnsupported, "requires ABI 0.2, this host offers up to"},
        Fault{"bad_requires_more_than_built", kBroken, "requires minor 1 but is built with 0"},
        Fault{"bad_reserved", kBroken, "reserved[2] is 0x9"},
        Fault{"bad_null_id", kBroken, "its id is NULL"},
        Fault{"bad_empty_id", kBroken, "its id is empty"},
        Fault{"bad_long_id", kBroken, "its id does not end within 64 bytes"},
        Fault{"bad_strange_id", kBroken, "its id has the byte \\x0a at 5"},
        Fault{"bad_null_version", kBroken, "its version is NULL"},
        Fault{"bad_long_version", kBroken, "its version does not end within 32 bytes"},
        Fault{"bad_null_get_table", kBroken, "get_table is NULL"},
        Fault{"bad_null_deinit", kBroken, "deinit is NULL"},
        Fault{"bad_past_plugin", kBroken, "wrote past the end of strata_plugin_t"},
        Fault{"bad_no_table", kBroken, "no table 'strata.strategy/1'"},
        Fault{"bad_small_table", kBroken, "its table 'strata.strategy/1' has"},
        Fault{"bad_table_reserved", kBroken, "the reserved word of its table"},
        Fault{"bad_null_slot", kBroken, "the slot 'abort'"},
        Fault{"bad_no_strategies", kBroken, "it has 0 strategies"},
        Fault{"bad_same_names", kBroken, "two strategies of the name 'plain_c'"},
        Fault{"bad_bad_name", kBroken, "the name of strategy 0 has the byte \\x20"},
        Fault{"bad_name_behind_last", kBroken, "a name behind the last of its 1"},
        Fault{"bad_no_description", kBroken, "does not describe it: plain_c: it does not know"},
        Fault{"bad_no_device", kBroken, "states no device"},
        Fault{"bad_entry_throws", kBroken, "its entry threw 'out of the entry'"},
        Fault{"bad_entry_throws_int", kBroken, "its entry threw 'something that is not"},
        Fault{"bad_slot_throws", kBroken, "a slot of its table threw 'out of the slot'"}),
    [](const auto& info) { return std::string(info.param.plugin); });

}  // namespace
}  // namespace strata::plugin
