#include "strata/data/bpe_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "strata/data/byte_alphabet.h"
#include "strata/formats/file.h"
#include "strata/formats/json.h"

namespace strata::data {
namespace {

using formats::Json;
using Ids = std::unordered_map<std::string, int32_t>;  // by bytes

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr int64_t kLargestId = 1 << 22;

Status not_supported(const std::string& path, const std::string& what) {
  return unsupported(fmt::format(
      "{}: {}. HINT: supported is byte-level BPE as GPT-2 has it; give a tokenizer of this kind",
      path, what));
}

Status damaged(const std::string& path, const std::string& what) {
  return invalid_argument(fmt::format("{}: {}. HINT: the file is damaged", path, what));
}

// {"spelling": id} -> tokens by id. `names` are added tokens, which are spelled plainly.
Status read_vocab(const std::string& path, const Json& vocab,
                  const std::unordered_set<std::string>& names, BpeModel& model) {
  if (!vocab.is_object()) return damaged(path, "the vocabulary is missing or not an object");
  for (const auto& [spelling, value] : vocab.items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargestId)
      return damaged(path, fmt::format("token '{}' has id {}, not an integer in [0, {}]", spelling,
                                       value.dump(), kLargestId));
    if (names.contains(spelling)) continue;
    const auto id = value.get<size_t>();
    std::optional<std::string> bytes = from_alphabet(spelling);
    if (!bytes || bytes->empty())
      return not_supported(path, fmt::format("token '{}' (id {}) is not spelled in GPT-2's byte "
                                             "alphabet",
                                             spelling, id));
    if (id >= model.tokens.size()) model.tokens.resize(id + 1);
    if (model.tokens[id])
      return damaged(path, fmt::format("id {} belongs to '{}' and to '{}'", id,
                                       to_alphabet(*model.tokens[id]), spelling));
    model.tokens[id] = std::move(bytes);
  }
  return {};
}

Ids ids_by_bytes(const BpeModel& model) {
  Ids ids;
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (model.tokens[id]) ids[*model.tokens[id]] = static_cast<int32_t>(id);
  return ids;
}

// `place` says which merge it is, for messages.
Status add_merge(const std::string& path, const std::string& place, const std::string& left,
                 const std::string& right, const Ids& ids, BpeModel& model) {
  int32_t pair[2];
  const std::string* sides[2] = {&left, &right};
  for (int i = 0; i < 2; ++i) {
    const std::optional<std::string> bytes = from_alphabet(*sides[i]);
    const auto it = bytes ? ids.find(*bytes) : ids.end();
    if (it == ids.end())
      return invalid_argument(fmt::format(
          "{}: {} merges '{}' and '{}', but '{}' is not in the vocabulary. HINT: vocabulary and "
          "merges are of different tokenizers",
          path, place, left, right, *sides[i]));
    pair[i] = it->second;
  }
  model.merges.emplace_back(pair[0], pair[1]);
  return {};
}

// "left right" -> both, or false.
bool split_merge(const std::string& line, std::string& left, std::string& right) {
  const size_t space = line.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string::npos)
    return false;
  left = line.substr(0, space);
  right = line.substr(space + 1);
  return true;
}

// Older files have "left right", newer ones ["left", "right"].
Status read_merges(const std::string& path, const Json& merges, BpeModel& model) {
  if (!merges.is_array()) return damaged(path, "model.merges is missing or not an array");
  const Ids ids = ids_by_bytes(model);
  std::string left, right;
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    const std::string place = fmt::format("merge {}", i + 1);
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (!merge.is_string() || !split_merge(merge.get<std::string>(), left, right)) {
      return damaged(path, fmt::format("{} is {}, not a pair", place, merge.dump()));
    }
    STRATA_RETURN_IF_ERROR(add_merge(path, place, left, right, ids, model));
  }
  return {};
}

Status read_added_tokens(const std::string& path, const Json& json, BpeModel& model) {
  if (json.is_null()) return {};
  if (!json.is_array()) return damaged(path, "added_tokens is not an array");
  for (const Json& entry : json) {
    AddedToken token;
    STRATA_ASSIGN_OR_RETURN(token.content, formats::get_string(entry, "content", path));
    STRATA_ASSIGN_OR_RETURN(const int64_t id, formats::get_int(entry, "id", path));
    STRATA_ASSIGN_OR_RETURN(token.is_special, formats::get_bool_or(entry, "special", true, path));
    if (id < 0 || id > kLargestId)
      return damaged(path, fmt::format("the added token '{}' has id {}", token.content, id));
    token.id = static_cast<int32_t>(id);
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      STRATA_ASSIGN_OR_RETURN(const bool is_set, formats::get_bool_or(entry, flag, false, path));
      if (is_set)
        return not_supported(path,
                             fmt::format("the added token '{}' has '{}'", token.content, flag));
    }
    model.added.push_back(std::move(token));
  }
  return {};
}

// Absent, null, "", 0 and false ask for nothing.
bool asks_for_nothing(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ||
         (it->is_string() && it->get_ref<const std::string&>().empty()) ||
         (it->is_number() && it->get<double>() == 0) || (it->is_boolean() && !it->get<bool>());
}

Status check_byte_level(const std::string& path, const Json& json, const char* part) {
  const Json value = json.value(part, Json());
  const std::string type = value.is_object() ? value.value("type", Json("?")).dump() : "absent";
  if (type != "\"ByteLevel\"")
    return not_supported(path, fmt::format("its {} is {}, not \"ByteLevel\"", part, type));
  return {};
}

// Everything that would make other ids than ours.
Status check_scheme(const std::string& path, const Json& json) {
  if (!json.is_object() || !json.contains("model") || !json["model"].is_object())
    return damaged(path, "it has no 'model'");
  const Json& model = json["model"];
  // Files of the first releases have no type; only BPE has merges.
  const std::string type = model.value("type", Json(model.contains("merges") ? "BPE" : "?")).dump();
  if (type != "\"BPE\"") return not_supported(path, fmt::format("its model is {}", type));
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"})
    if (!asks_for_nothing(model, key))
      return not_supported(path, fmt::format("model.{} is {}", key, model[key].dump()));
  if (!asks_for_nothing(json, "normalizer")) return not_supported(path, "it has a normalizer");
  for (const char* key : {"truncation", "padding"})
    if (!asks_for_nothing(json, key)) return not_supported(path, fmt::format("it has {}", key));
  STRATA_RETURN_IF_ERROR(check_byte_level(path, json, "pre_tokenizer"));
  STRATA_RETURN_IF_ERROR(check_byte_level(path, json, "decoder"));
  // As a post-processor, ByteLevel only moves offsets.
  if (!asks_for_nothing(json, "post_processor"))
    STRATA_RETURN_IF_ERROR(check_byte_level(path, json, "post_processor"));
  const Json& split = json["pre_tokenizer"];
  STRATA_ASSIGN_OR_RETURN(const bool prefix,
                          formats::get_bool_or(split, "add_prefix_space", true, path));
  STRATA_ASSIGN_OR_RETURN(const bool regex, formats::get_bool_or(split, "use_regex", true, path));
  if (prefix) return not_supported(path, "pre_tokenizer.add_prefix_space is true");
  if (!regex) return not_supported(path, "pre_tokenizer.use_regex is false");
  return {};
}

const AddedToken* find_added(const BpeModel& model, const std::string& content) {
  for (const AddedToken& token : model.added)
    if (token.content == content) return &token;
  return nullptr;
}

// The tokenizer_config.json beside the files may name another end token.
Status read_end_token(const std::string& folder, BpeModel& model) {
  std::string name = kEndOfText;
  const std::string path = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  if (std::filesystem::exists(path)) {
    STRATA_ASSIGN_OR_RETURN(const Json config, formats::read_json(path));
    Json end = config.is_object() ? config.value("eos_token", Json()) : Json();
    if (end.is_object()) end = end.value("content", Json());
    if (end.is_string()) name = end.get<std::string>();
  }
  if (const AddedToken* token = find_added(model, name)) model.end_id = token->id;
  return {};
}

std::string folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? std::string(".") : parent.string();
}

// {"content": id}, as transformers wrote it before tokenizer.json.
Status read_added_tokens_file(const std::string& path, BpeModel& model) {
  if (!std::filesystem::exists(path)) return {};
  STRATA_ASSIGN_OR_RETURN(const Json json, formats::read_json(path));
  if (!json.is_object()) return damaged(path, "it is not an object");
  for (const auto& [content, value] : json.items()) {
    STRATA_ASSIGN_OR_RETURN(const int64_t id, formats::get_int(json, content, path));
    if (id < 0 || id > kLargestId)
      return damaged(path, fmt::format("token '{}' has id {}", content, id));
    model.added.push_back({static_cast<int32_t>(id), content, true});
  }
  return {};
}

}  // namespace

Result<BpeModel> read_tokenizer_json(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const Json json, formats::read_json(path));
  STRATA_RETURN_IF_ERROR(check_scheme(path, json));
  BpeModel model;
  STRATA_RETURN_IF_ERROR(read_added_tokens(path, json.value("added_tokens", Json()), model));
  std::unordered_set<std::string> names;
  for (const AddedToken& token : model.added) names.insert(token.content);
  STRATA_RETURN_IF_ERROR(read_vocab(path, json["model"].value("vocab", Json()), names, model));
  STRATA_RETURN_IF_ERROR(read_merges(path, json["model"].value("merges", Json()), model));
  STRATA_RETURN_IF_ERROR(read_end_token(folder_of(path), model));
  return model;
}

Result<BpeModel> read_vocab_and_merges(const std::string& vocab_path,
                                       const std::string& merges_path) {
  STRATA_ASSIGN_OR_RETURN(const Json vocab, formats::read_json(vocab_path));
  STRATA_ASSIGN_OR_RETURN(const std::string merges, formats::read_file(merges_path));
  BpeModel model;
  const std::string folder = folder_of(vocab_path);
  STRATA_RETURN_IF_ERROR(read_added_tokens_file(
      (std::filesystem::path(folder) / "added_tokens.json").string(), model));
  std::unordered_set<std::string> names{kEndOfText};
  for (const AddedToken& token : model.added) names.insert(token.content);
  STRATA_RETURN_IF_ERROR(read_vocab(vocab_path, vocab, names, model));
  if (find_added(model, kEndOfText) == nullptr) {
    auto id = static_cast<int32_t>(model.tokens.size());
    for (const AddedToken& token : model.added) id = std::max(id, token.id + 1);
    if (vocab.contains(kEndOfText)) id = vocab[kEndOfText].get<int32_t>();
    model.added.push_back({id, kEndOfText, true});
  }
  const Ids ids = ids_by_bytes(model);
  size_t begin = 0;
  std::string left, right;
  for (size_t line_number = 1; begin < merges.size(); ++line_number) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string line = merges.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::string place = fmt::format("line {}", line_number);
    if (!split_merge(line, left, right))
      return damaged(merges_path, fmt::format("{} is '{}', not a pair", place, line));
    STRATA_RETURN_IF_ERROR(add_merge(merges_path, place, left, right, ids, model));
  }
  STRATA_RETURN_IF_ERROR(read_end_token(folder, model));
  return model;
}

}  // namespace strata::data
