// Rows of a tokenizer's expected.jsonl, as tests/data/tokenizers has them.
#ifndef STRATA_TESTS_UNIT_DATA_BPE_FIXTURE_H_
#define STRATA_TESTS_UNIT_DATA_BPE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "strata/data/tokenizer.h"
#include "tests/unit/temporary_folder.h"

namespace strata::test {

inline const std::string kBpeFolder = STRATA_SOURCE_DIR "/tests/data/tokenizers/bpe";

inline std::unique_ptr<data::Tokenizer> must_load(const std::string& folder) {
  auto tokenizer = data::load_tokenizer(folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Compares all rows of `path` with what `tokenizer` makes of them; gives their number.
inline int expect_rows(const data::Tokenizer& tokenizer, const std::string& path) {
  std::istringstream file(content_of(path));
  int rows = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    SCOPED_TRACE(line.substr(0, 200));
    const auto row = nlohmann::json::parse(line);
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    const auto decoded = row["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer.decode(ids).value(), decoded);
    if (row.contains("text")) {
      EXPECT_EQ(tokenizer.encode(row["text"].get<std::string>()), ids);
    }
    if (row.contains("hex")) {
      const std::string bytes = from_hex(row["hex"]);
      EXPECT_EQ(tokenizer.decode_bytes(tokenizer.encode(bytes)).value(), bytes);
      EXPECT_EQ(tokenizer.decode_bytes(ids).value(), bytes);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)).value(), decoded);
    }
  }
  return rows;
}

}  // namespace strata::test

#endif  // STRATA_TESTS_UNIT_DATA_BPE_FIXTURE_H_
