// The contract's layout is what core/abi/abi.lock says. `contract_test --write` writes the lock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "strata/abi/types.h"
#include "strata/base/status.h"
#include "tests/abi/abi_layout.h"

namespace strata::test {
namespace {

const char* const kLock = STRATA_SOURCE_DIR "/core/abi/abi.lock";
const char* const kHeaders[] = {"types", "plugin", "host", "strategy", "collectives", "aliases"};

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string header(const char* name) {
  return read(std::string(STRATA_SOURCE_DIR) + "/core/abi/" + name + ".h");
}

TEST(AbiLock, HoldsTheLayoutOfTheHeaders) {
  std::istringstream locked(read(kLock));
  std::istringstream built(abi_text());
  std::string locked_line;
  std::string built_line;
  for (int line = 1; std::getline(built, built_line); ++line) {
    ASSERT_TRUE(std::getline(locked, locked_line)) << "abi.lock ends before: " << built_line;
    ASSERT_EQ(built_line, locked_line)
        << "line " << line << " of core/abi/abi.lock. If the change is on purpose: "
        << "contract_test --write, and a line in docs/ABI.md";
  }
  EXPECT_FALSE(std::getline(locked, locked_line)) << "abi.lock goes on with: " << locked_line;
}

TEST(AbiLock, ListsEveryStructOfTheHeaders) {
  std::set<std::string> listed;
  for (const LayoutStruct& type : abi_structs()) listed.insert(type.name);
  const std::regex end_of_struct(R"(\n\} (strata_\w+_t);)");
  size_t found = 0;
  for (const char* name : kHeaders) {
    const std::string text = header(name);
    ASSERT_FALSE(text.empty()) << name;
    for (std::sregex_iterator it(text.begin(), text.end(), end_of_struct), end; it != end; ++it) {
      EXPECT_EQ(listed.count((*it)[1]), 1u) << (*it)[1] << " of " << name << ".h is not listed";
      ++found;
    }
  }
  EXPECT_EQ(found, listed.size());
}

TEST(AbiLock, ListsEveryConstantOfTheHeaders) {
  std::set<std::string> listed;
  for (const LayoutConstant& constant : abi_constants()) listed.insert(constant.name);
  const std::regex define(R"(\n#define (STRATA_\w+)[ \\])");
  for (const char* name : kHeaders) {
    const std::string text = header(name);
    for (std::sregex_iterator it(text.begin(), text.end(), define), end; it != end; ++it) {
      const std::string constant = (*it)[1];
      if (constant.ends_with("_MIN_SIZE") || constant.ends_with("_H_")) continue;
      EXPECT_EQ(listed.count(constant), 1u) << constant << " of " << name << ".h is not listed";
    }
  }
}

TEST(AbiLock, FindsNoHiddenPadding) {
  for (const LayoutStruct& type : abi_structs()) {
    size_t end = 0;
    for (const LayoutField& field : type.fields) {
      EXPECT_EQ(field.offset, end) << type.name << "." << field.name;
      end = field.offset + field.size;
    }
    EXPECT_EQ(end, type.size) << type.name;
  }
}

TEST(AbiLock, FindsStructSizeFirstInEveryStructThatMayGrow) {
  // Frozen for ever, without a size of their own.
  const std::set<std::string> fixed = {"strata_device_t", "strata_cpu_queue_t", "strata_option_t",
                                       "strata_hello_t", "strata_plugin_t"};
  for (const LayoutStruct& type : abi_structs()) {
    if (fixed.count(type.name) != 0) continue;
    EXPECT_EQ(type.fields[0].name, "struct_size") << type.name;
    const bool is_table = type.name.ends_with("_1_t");
    EXPECT_EQ(type.min_size != 0, !is_table) << type.name;
    EXPECT_LE(type.min_size, type.size) << type.name;
  }
}

TEST(Contract, UsesNoTypeThatVariesBetweenMachines) {
  const std::regex bad(
      R"(\b(bool|long|short|unsigned|wchar_t|enum|union|double \w+;|size_t \w+[;,)])\b|\.\.\.|: \d+;)");
  for (const char* name : kHeaders) {
    std::istringstream lines(header(name));
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      const std::string code = line.substr(0, line.find("//"));
      EXPECT_FALSE(std::regex_search(code, bad)) << name << ".h:" << number << ": " << line;
    }
  }
}

TEST(Contract, HasTheStatusCodesOfBase) {
  EXPECT_EQ(static_cast<int>(Code::kOk), STRATA_OK);
  EXPECT_EQ(static_cast<int>(Code::kInvalidArgument), STRATA_E_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<int>(Code::kUnsupported), STRATA_E_UNSUPPORTED);
  EXPECT_EQ(static_cast<int>(Code::kOutOfMemory), STRATA_E_OUT_OF_MEMORY);
  EXPECT_EQ(static_cast<int>(Code::kTimeout), STRATA_E_TIMEOUT);
  EXPECT_EQ(static_cast<int>(Code::kAborted), STRATA_E_ABORTED);
  EXPECT_EQ(static_cast<int>(Code::kPeerLost), STRATA_E_PEER_LOST);
  EXPECT_EQ(static_cast<int>(Code::kState), STRATA_E_STATE);
  EXPECT_EQ(static_cast<int>(Code::kIo), STRATA_E_IO);
  EXPECT_EQ(static_cast<int>(Code::kNotFound), STRATA_E_NOT_FOUND);
  EXPECT_EQ(static_cast<int>(Code::kInternal), STRATA_E_INTERNAL);
}

}  // namespace
}  // namespace strata::test

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--write") == 0) {
    std::ofstream(strata::test::kLock) << strata::test::abi_text();
    return 0;
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
