#include "strata/plugin/elf_file.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace strata::plugin {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "core/plugin/elf_file.cpp: name this machine's ELF number"
#endif

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "AArch64";
    case EM_386: return "i386";
    case EM_ARM: return "ARM";
    case EM_RISCV: return "RISC-V";
    case EM_PPC64: return "POWER";
    default: return fmt::format("ELF machine {}", machine);
  }
}

// The first bytes of a file that is not ELF, as text where they are text.
std::string show(std::string_view bytes) {
  std::string out;
  for (const char c : bytes.substr(0, 12)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

Status not_a_library(const std::string& path, const std::string& found) {
  return invalid_argument(fmt::format(
      "plugin '{}' is not a shared library: {}. HINT: give the path of a built libstrata_*.so",
      path, found));
}

Status truncated(const std::string& path, uint64_t needed, uint64_t size) {
  return invalid_argument(
      fmt::format("plugin '{}' is truncated: its headers speak of {} bytes, the file has {}. "
                  "HINT: build or copy it again",
                  path, needed, size));
}

Status check_header(const std::string& path, const Elf64_Ehdr& header) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine) {
    return unsupported(fmt::format(
        "plugin '{}' is built for another machine: {}-bit {}; this process is 64-bit {}. "
        "HINT: build it here",
        path, header.e_ident[EI_CLASS] == ELFCLASS32 ? 32 : 64, machine_name(header.e_machine),
        machine_name(kMachine)));
  }
  if (header.e_type != ET_DYN) {
    const char* kind = header.e_type == ET_REL    ? "an object file"
                       : header.e_type == ET_EXEC ? "an executable"
                                                  : "another kind of ELF file";
    return not_a_library(path, fmt::format("it is {}", kind));
  }
  return {};
}

}  // namespace

Status check_shared_library_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return not_found(
        fmt::format("plugin '{}': there is no such file. HINT: check the path; "
                    "`strata plugins list` shows what is installed",
                    path));
  }
  if (fs::is_directory(status)) return not_a_library(path, "it is a directory");
  if (!fs::is_regular_file(status)) return not_a_library(path, "it is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return io_error(fmt::format("plugin '{}' cannot be read: {}. HINT: check its permissions", path,
                                std::strerror(errno)));
  }
  const uint64_t size = fs::file_size(path, error);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const auto got = static_cast<size_t>(file.gcount());
  if (got == 0) return not_a_library(path, "it is empty");
  if (got < SELFMAG || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    const std::string_view start(reinterpret_cast<const char*>(&header), got);
    return not_a_library(
        path, fmt::format("it begins with '{}', an ELF file with '\\x7fELF'", show(start)));
  }
  if (got < sizeof(header)) return truncated(path, sizeof(header), size);
  STRATA_RETURN_IF_ERROR(check_header(path, header));
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0) {
    return not_a_library(path, "it has no program headers");
  }
  const uint64_t end = header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (end > size || header.e_phoff > size) return truncated(path, end, size);
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  file.read(reinterpret_cast<char*>(segments.data()),
            static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr)));
  uint64_t needed = end;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD) needed = std::max(needed, segment.p_offset + segment.p_filesz);
  }
  return needed > size ? truncated(path, needed, size) : Status();
}

}  // namespace strata::plugin
