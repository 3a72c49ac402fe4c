// What the built plugins look like from outside: one exported symbol, no LibTorch.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace strata::test {
namespace {

namespace fs = std::filesystem;

// The dynamic section of a 64-bit ELF file, through its section headers.
struct Binary {
  std::vector<std::string> exported;
  std::vector<std::string> needed;
  bool binds_now = false;
};

template <typename T>
std::vector<T> table(const std::string& file, const Elf64_Shdr& section) {
  std::vector<T> out(section.sh_size / sizeof(T));
  std::memcpy(out.data(), file.data() + section.sh_offset, out.size() * sizeof(T));
  return out;
}

Binary read_binary(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  Elf64_Shdr all;
  all.sh_offset = header.e_shoff;
  all.sh_size = header.e_shnum * sizeof(Elf64_Shdr);
  const auto sections = table<Elf64_Shdr>(file, all);
  Binary binary;
  for (const Elf64_Shdr& section : sections) {
    const auto text = [&](uint64_t at) {
      return std::string(file.data() + sections[section.sh_link].sh_offset + at);
    };
    if (section.sh_type == SHT_DYNSYM) {
      for (const Elf64_Sym& symbol : table<Elf64_Sym>(file, section)) {
        if (symbol.st_shndx != SHN_UNDEF) binary.exported.push_back(text(symbol.st_name));
      }
    } else if (section.sh_type == SHT_DYNAMIC) {
      for (const Elf64_Dyn& entry : table<Elf64_Dyn>(file, section)) {
        if (entry.d_tag == DT_NEEDED) binary.needed.push_back(text(entry.d_un.d_val));
        if (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_NOW) != 0)
          binary.binds_now = true;
      }
    }
  }
  return binary;
}

std::vector<fs::path> built_plugins() {
  std::vector<fs::path> files;
  if (!fs::exists(STRATA_PLUGIN_DIR)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(STRATA_PLUGIN_DIR)) {
    if (entry.path().extension() == ".so") files.push_back(entry.path());
  }
  return files;
}

// A plugin of the tests that goes through the same build function; it is always there.
const fs::path kSdkPlugin = STRATA_BINARY_DIR "/tests/abi_plugins/all/libstrata_test_sdk.so";

TEST(EveryPlugin, ExportsTheEntryAlone) {
  std::vector<fs::path> files = built_plugins();
  files.push_back(kSdkPlugin);
  for (const fs::path& file : files) {
    EXPECT_EQ(read_binary(file).exported, std::vector<std::string>{"strata_plugin_entry_v1"})
        << file;
  }
}

TEST(EveryPlugin, LinksNoLibTorch) {
  std::vector<fs::path> files = built_plugins();
  files.push_back(kSdkPlugin);
  for (const fs::path& file : files) {
    for (const std::string& library : read_binary(file).needed) {
      EXPECT_EQ(library.find("torch"), std::string::npos) << file;
      EXPECT_EQ(library.find("c10"), std::string::npos) << file;
    }
  }
}

TEST(EveryPlugin, ResolvesItsSymbolsWhenItIsLoaded) {
  std::vector<fs::path> files = built_plugins();
  files.push_back(kSdkPlugin);
  for (const fs::path& file : files) EXPECT_TRUE(read_binary(file).binds_now) << file;
}

}  // namespace
}  // namespace strata::test
