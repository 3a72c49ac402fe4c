// The file of --config, as a flat list of keys and values.
#ifndef STRATA_CONFIG_TOML_FILE_H_
#define STRATA_CONFIG_TOML_FILE_H_

#include <string>
#include <vector>

#include "strata/base/status.h"

namespace strata::config {

struct FileEntry {
  enum class Kind { kBool, kInteger, kReal, kText, kList, kTable, kOther };
  std::string key;
  int line = 0;
  Kind kind = Kind::kOther;
  std::string text;                // of a scalar
  std::vector<std::string> items;  // of a list of scalars, or "key=value" of a table of scalars
};

// Returns   kNotFound, kIo     the file cannot be read
//           kInvalidArgument   it is not TOML; the message has the line
Result<std::vector<FileEntry>> read_toml_file(const std::string& path);

// The text as a TOML string, quoted.
std::string toml_string(const std::string& text);

}  // namespace strata::config

#endif  // STRATA_CONFIG_TOML_FILE_H_
