#include "strata/data/text_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>

#include "strata/data/utf8.h"
#include "strata/formats/file.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

// Below this a thread costs more than it saves.
constexpr size_t kBytesPerThread = 1 << 20;

Result<std::string> read_text(const std::string& path) {
  Result<std::string> text = formats::read_file(path);
  if (!text.ok()) return text.status().with_context("data");
  if (text->empty())
    return invalid_argument(fmt::format("data: '{}' is empty. HINT: give a text", path));
  const size_t valid = valid_utf8_prefix(*text);
  if (valid < text->size())
    return invalid_argument(fmt::format(
        "data: '{}' is not UTF-8 text: byte 0x{:02x} at offset {} of {}. HINT: convert it, for "
        "example iconv -f LATIN1 -t UTF-8",
        path, static_cast<uint8_t>((*text)[valid]), valid, text->size()));
  return text;
}

Result<std::vector<std::string>> text_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".txt" && !it->is_directory(ignored))
      paths.push_back(it->path().string());
  }
  if (error)
    return io_error(fmt::format("data: cannot read the folder '{}': {}. HINT: see its mode", folder,
                                error.message()));
  if (paths.empty())
    return invalid_argument(fmt::format(
        "data: the folder '{}' has no .txt file. HINT: give a text file or a folder with some",
        folder));
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The first place at or behind `from` where a text may be cut; its end if there is none.
size_t find_cut(std::string_view text, size_t from) {
  for (size_t i = std::max<size_t>(from, 1); i < text.size(); ++i)
    if (is_space(text[i]) && static_cast<signed char>(text[i - 1]) > 0 && !is_space(text[i - 1]))
      return i;
  return text.size();
}

}  // namespace

Result<std::vector<std::string>> read_texts(const std::string& path) {
  std::error_code error;
  std::vector<std::string> paths{path};
  if (fs::is_directory(path, error)) {
    STRATA_ASSIGN_OR_RETURN(paths, text_files(path));
  }
  std::vector<std::string> texts;
  for (const std::string& file : paths) {
    STRATA_ASSIGN_OR_RETURN(std::string text, read_text(file));
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text, int threads) {
  const size_t parts = std::clamp<size_t>(text.size() / kBytesPerThread, 1,
                                          static_cast<size_t>(std::max(threads, 1)));
  if (parts == 1 || !tokenizer.can_cut_at_whitespace()) return tokenizer.encode(text);
  std::vector<std::vector<int32_t>> ids(parts);
  std::vector<std::thread> workers;
  size_t begin = 0;
  for (size_t part = 0; part < parts; ++part) {
    const size_t target = std::max(begin, text.size() / parts * (part + 1));
    const size_t end = part + 1 == parts ? text.size() : find_cut(text, target);
    workers.emplace_back([&tokenizer, &out = ids[part], slice = text.substr(begin, end - begin)] {
      tokenizer.encode(slice, out);
    });
    begin = end;
  }
  for (std::thread& worker : workers) worker.join();
  for (size_t part = 1; part < parts; ++part)
    ids[0].insert(ids[0].end(), ids[part].begin(), ids[part].end());
  return std::move(ids[0]);
}

Result<TextDataset> TextDataset::load(const std::string& path, const Tokenizer& tokenizer,
                                      int64_t sequence_length, int threads) {
  STRATA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, read_texts(path));
  std::vector<int32_t> ids = encode_text(tokenizer, texts[0], threads);
  for (size_t i = 1; i < texts.size(); ++i) {
    if (tokenizer.end_id()) ids.push_back(*tokenizer.end_id());
    const std::vector<int32_t> more = encode_text(tokenizer, texts[i], threads);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return from_ids(std::move(ids), sequence_length, path);
}

Result<TextDataset> TextDataset::from_ids(std::vector<int32_t> ids, int64_t sequence_length,
                                          const std::string& name) {
  if (sequence_length < 1)
    return invalid_argument(
        fmt::format("data: the sequence length is {}. HINT: --sequence-length must be 1 or more",
                    sequence_length));
  const auto count = static_cast<int64_t>(ids.size());
  if (count < sequence_length)
    return invalid_argument(fmt::format(
        "data: '{}' has {} tokens, fewer than one sequence of {}. HINT: use a longer text or "
        "--sequence-length {} or less",
        name, count, sequence_length, std::max<int64_t>(count, 1)));
  return TextDataset(std::move(ids), sequence_length);
}

void TextDataset::fill(int64_t index, std::span<int64_t> out) const {
  STRATA_CHECK(index >= 0 && index < size()) << "block " << index << " of " << size();
  STRATA_CHECK(static_cast<int64_t>(out.size()) == sequence_length_)
      << out.size() << " places for " << sequence_length_ << " ids";
  const int32_t* from = ids_.data() + index * sequence_length_;
  std::copy(from, from + sequence_length_, out.begin());
}

int32_t TextDataset::largest_id() const { return *std::max_element(ids_.begin(), ids_.end()); }

double TextDataset::unigram_entropy() const {
  std::vector<int64_t> counts(static_cast<size_t>(largest_id()) + 1, 0);
  for (const int32_t id : ids_) ++counts[id];
  const auto total = static_cast<double>(ids_.size());
  double entropy = 0;
  for (const int64_t count : counts)
    if (count > 0) entropy -= static_cast<double>(count) / total * std::log(count / total);
  return entropy;
}

}  // namespace strata::data
