#include "strata/config/toml_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "strata/config/numbers.h"

namespace strata::config {
namespace {

bool is_scalar(FileEntry::Kind kind) {
  return kind == FileEntry::Kind::kBool || kind == FileEntry::Kind::kInteger ||
         kind == FileEntry::Kind::kReal || kind == FileEntry::Kind::kText;
}

FileEntry read_scalar(const toml::node& node) {
  FileEntry entry;
  entry.line = static_cast<int>(node.source().begin.line);
  if (const auto* flag = node.as_boolean()) {
    entry.kind = FileEntry::Kind::kBool;
    entry.text = flag->get() ? "true" : "false";
  } else if (const auto* integer = node.as_integer()) {
    entry.kind = FileEntry::Kind::kInteger;
    entry.text = std::to_string(integer->get());
  } else if (const auto* real = node.as_floating_point()) {
    entry.kind = FileEntry::Kind::kReal;
    entry.text = real_text(real->get());
  } else if (const auto* text = node.as_string()) {
    entry.kind = FileEntry::Kind::kText;
    entry.text = text->get();
  }
  return entry;
}

FileEntry read_node(const toml::node& node) {
  FileEntry entry = read_scalar(node);
  if (const toml::array* array = node.as_array()) {
    entry.kind = FileEntry::Kind::kList;
    for (const toml::node& item : *array) {
      const FileEntry scalar = read_scalar(item);
      if (!is_scalar(scalar.kind)) entry.kind = FileEntry::Kind::kOther;
      entry.items.push_back(scalar.text);
    }
  } else if (const toml::table* table = node.as_table()) {
    entry.kind = FileEntry::Kind::kTable;
    for (const auto& [key, item] : *table) {
      const FileEntry scalar = read_scalar(item);
      if (!is_scalar(scalar.kind)) entry.kind = FileEntry::Kind::kOther;
      entry.items.push_back(fmt::format("{}={}", key.str(), scalar.text));
    }
  }
  return entry;
}

// Every rank reads the file again, so a pipe is refused, and so is a device, which may never end.
Result<std::string> read_text(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return not_found(
        fmt::format("--config: '{}' does not exist. HINT: give the path of a TOML file", path));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return invalid_argument(
        fmt::format("--config: '{}' cannot be read: it is a {}. HINT: give the path of a TOML file",
                    path, std::filesystem::is_directory(status) ? "folder" : "pipe or a device"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string content;
  char buffer[4096];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    content.append(buffer, static_cast<size_t>(file.gcount()));
  }
  if (file.is_open() && !file.bad()) return content;
  return io_error(fmt::format("--config: '{}' cannot be read: {}. HINT: see its mode", path,
                              std::strerror(errno)));
}

}  // namespace

Result<std::vector<FileEntry>> read_toml_file(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const std::string content, read_text(path));
  std::vector<FileEntry> entries;
  try {
    const toml::table table = toml::parse(content, path);
    for (const auto& [key, node] : table) {
      entries.push_back(read_node(node));
      entries.back().key = key.str();
      entries.back().line = static_cast<int>(key.source().begin.line);
    }
  } catch (const toml::parse_error& e) {
    return invalid_argument(
        fmt::format("--config: {}:{}: {}. HINT: the file is TOML, for example "
                    "`learning-rate = 1e-3`",
                    path, e.source().begin.line, e.description()));
  }
  return entries;
}

std::string toml_string(const std::string& text) {
  std::ostringstream out;
  const toml::value<std::string> value(text);
  out << toml::toml_formatter(value, toml::format_flags::none);
  return out.str();
}

}  // namespace strata::config
