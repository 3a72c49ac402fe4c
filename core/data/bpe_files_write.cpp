#include <fmt/format.h>

#include <filesystem>

#include "strata/data/bpe_files.h"
#include "strata/data/byte_alphabet.h"
#include "strata/formats/file.h"
#include "strata/formats/json.h"

namespace strata::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string spelling(const BpeModel& model, int32_t id) { return to_alphabet(*model.tokens[id]); }

// {"spelling": id} in the order of ids.
OrderedJson vocab_json(const BpeModel& model) {
  OrderedJson::object_t vocab;
  vocab.reserve(model.tokens.size());
  // Straight into the vector behind it: insertion by key would search it each time.
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (model.tokens[id]) vocab.emplace_back(spelling(model, static_cast<int32_t>(id)), id);
  return vocab;
}

OrderedJson tokenizer_json(const BpeModel& model, const OrderedJson& vocab) {
  OrderedJson added = OrderedJson::array();
  for (const AddedToken& token : model.added)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.is_special}});
  OrderedJson merges = OrderedJson::array();
  for (const auto& [left, right] : model.merges)
    merges.push_back(spelling(model, left) + " " + spelling(model, right));
  const auto byte_level = [](bool add_prefix_space, bool trim_offsets) {
    return OrderedJson{{"type", "ByteLevel"},
                       {"add_prefix_space", add_prefix_space},
                       {"trim_offsets", trim_offsets},
                       {"use_regex", true}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level(false, true)},
          {"post_processor", byte_level(true, false)},
          {"decoder", byte_level(true, true)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

// What transformers needs beside tokenizer.json to load the folder without being told the class.
OrderedJson config_json(const BpeModel& model) {
  OrderedJson config{{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false}};
  for (const AddedToken& token : model.added)
    if (model.end_id == token.id)
      for (const char* role : {"bos_token", "eos_token", "unk_token"}) config[role] = token.content;
  return config;
}

}  // namespace

Status write_bpe_files(const std::string& folder, const BpeModel& model) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  OrderedJson vocab = vocab_json(model);
  STRATA_RETURN_IF_ERROR(formats::write_file_atomically(
      path("tokenizer.json"), tokenizer_json(model, vocab).dump(2) + "\n"));
  for (const AddedToken& token : model.added) vocab[token.content] = token.id;
  STRATA_RETURN_IF_ERROR(formats::write_file_atomically(path("vocab.json"), vocab.dump()));
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : model.merges)
    merges += spelling(model, left) + " " + spelling(model, right) + "\n";
  STRATA_RETURN_IF_ERROR(formats::write_file_atomically(path("merges.txt"), merges));
  return formats::write_file_atomically(path("tokenizer_config.json"),
                                        config_json(model).dump(2) + "\n");
}

}  // namespace strata::data
