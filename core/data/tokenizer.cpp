#include "strata/data/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>

#include "strata/data/bpe_files.h"
#include "strata/data/bpe_tokenizer.h"
#include "strata/data/utf8.h"

namespace strata::data {

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids) const {
  STRATA_ASSIGN_OR_RETURN(const std::string bytes, decode_bytes(ids));
  return to_valid_utf8(bytes);
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto path = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const auto is_there = [&](const char* name) {
    std::error_code error;
    return fs::exists(path(name), error);
  };
  std::error_code error;
  if (!fs::exists(folder, error))
    return not_found(fmt::format("tokenizer: '{}' does not exist. HINT: check the path", folder));
  if (!fs::is_directory(folder, error))
    return invalid_argument(fmt::format(
        "tokenizer: '{}' is not a folder. HINT: give the folder of tokenizer.json", folder));

  BpeModel model;
  if (is_there("tokenizer.json")) {
    STRATA_ASSIGN_OR_RETURN(model, read_tokenizer_json(path("tokenizer.json")));
  } else if (is_there("vocab.json") && is_there("merges.txt")) {
    STRATA_ASSIGN_OR_RETURN(model, read_vocab_and_merges(path("vocab.json"), path("merges.txt")));
  } else {
    return not_found(
        fmt::format("tokenizer: '{}' has neither tokenizer.json nor vocab.json with "
                    "merges.txt. HINT: give a folder that has them",
                    folder));
  }
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<BpeTokenizer> tokenizer,
                          BpeTokenizer::create(std::move(model), folder));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace strata::data
