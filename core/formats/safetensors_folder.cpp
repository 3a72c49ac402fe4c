#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "strata/base/text.h"
#include "strata/formats/json.h"
#include "strata/formats/safetensors.h"

namespace strata::formats {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// Names of the shards come from a file: they must not lead out of the folder.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// tensor name -> file name
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const Json index, read_json(path));
  const auto it = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || it == index.end() || !it->is_object())
    return invalid_argument(fmt::format(
        "{}: 'weight_map' is missing or not an object. HINT: the file is damaged", path));
  std::map<std::string, std::string> map;
  for (const auto& [name, file] : it->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>()))
      return invalid_argument(fmt::format(
          "{}: tensor '{}' is said to be in {}, which is not the name of a file in this folder. "
          "HINT: the file is damaged",
          path, name, file.dump(-1, ' ', false, Json::error_handler_t::replace)));
    map[name] = file.get<std::string>();
  }
  return map;
}

}  // namespace

Result<SafetensorsFolder> SafetensorsFolder::open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  SafetensorsFolder folder;
  folder.path_ = path;
  const bool is_folder = fs::is_directory(path, error);
  const std::string single = is_folder ? (fs::path(path) / kSingle).string() : path;
  const std::string index_path = (fs::path(path) / kIndex).string();
  if (!is_folder || fs::exists(single, error)) {
    STRATA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
    for (const TensorInfo& tensor : file.tensors()) folder.file_of_[tensor.name] = 0;
    folder.files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
    return folder;
  }
  if (!fs::exists(index_path, error))
    return not_found(
        fmt::format("no weights in '{}': neither {} nor {} is there. HINT: give a "
                    "folder that save_pretrained wrote",
                    path, kSingle, kIndex));
  STRATA_ASSIGN_OR_RETURN(const auto map, read_index(index_path));
  std::map<std::string, size_t> opened;
  for (const auto& [name, file_name] : map) {
    auto it = opened.find(file_name);
    if (it == opened.end()) {
      STRATA_ASSIGN_OR_RETURN(SafetensorsFile file,
                              SafetensorsFile::open((fs::path(path) / file_name).string()));
      it = opened.emplace(file_name, folder.files_.size()).first;
      folder.files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
    }
    const SafetensorsFile& file = *folder.files_[it->second];
    if (file.find(name) == nullptr)
      return invalid_argument(fmt::format(
          "{}: tensor '{}' is said to be in '{}', which does not have it. HINT: index and shards "
          "are of different models; fetch or save them again",
          index_path, name, file_name));
    folder.file_of_[name] = it->second;
  }
  return folder;
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const TensorInfo* SafetensorsFolder::find(const std::string& name) const {
  const auto it = file_of_.find(name);
  return it == file_of_.end() ? nullptr : files_[it->second]->find(name);
}

Result<TensorInfo> SafetensorsFolder::require(const std::string& name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  const std::string nearest = text::nearest(name, names());
  return not_found(fmt::format(
      "{}: no tensor '{}' among its {}. HINT: {}", path_, name, file_of_.size(),
      nearest.empty() ? "the weights are of another model" : fmt::format("it has '{}'", nearest)));
}

const SafetensorsFile& SafetensorsFolder::file_of(const std::string& name) const {
  const auto it = file_of_.find(name);
  STRATA_CHECK(it != file_of_.end()) << "no tensor '" << name << "' in '" << path_ << "'";
  return *files_[it->second];
}

Result<std::span<const std::byte>> SafetensorsFolder::data(const std::string& name) const {
  STRATA_ASSIGN_OR_RETURN(const TensorInfo tensor, require(name));
  return file_of(name).data(tensor);
}

Status SafetensorsFolder::read(const std::string& name, int64_t first,
                               std::span<std::byte> out) const {
  STRATA_ASSIGN_OR_RETURN(const TensorInfo tensor, require(name));
  return file_of(name).read(name, first, out);
}

}  // namespace strata::formats
