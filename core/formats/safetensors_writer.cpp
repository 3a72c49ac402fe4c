#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "strata/formats/json.h"
#include "strata/formats/safetensors.h"
#include "strata/formats/safetensors_header.h"

namespace strata::formats {
namespace {

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<TensorInfo> checked(const std::string& path, const TensorSpec& spec) {
  const auto size = tensor_size(spec.dtype, spec.shape);
  if (!size)
    return invalid_argument(fmt::format(
        "{}: tensor '{}': shape {} of {} has a negative dimension or more than 2^63 bytes. HINT: "
        "correct the shape",
        path, spec.name, format_shape(spec.shape), dtype_name(spec.dtype)));
  if (spec.name == "__metadata__")
    return invalid_argument(
        fmt::format("{}: no tensor can be named '__metadata__'. HINT: choose another name", path));
  return TensorInfo{spec.name, spec.dtype, spec.shape, size->numel, 0, size->bytes};
}

// Without blanks, metadata first, as the reference implementation writes it.
std::string header_text(const std::vector<TensorInfo>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const char* comma = "";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}{}:{}", comma, quoted(key), quoted(value));
      comma = ",";
    }
    text += "}";
  }
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", comma,
                        quoted(tensor.name), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                        offset, offset + tensor.bytes);
    comma = ",";
    offset += tensor.bytes;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(AtomicFile file, std::vector<Entry> entries,
                                     uint64_t file_bytes)
    : file_(std::move(file)), entries_(std::move(entries)), file_bytes_(file_bytes) {
  for (size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].info.name] = i;
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::vector<TensorSpec> specs,
                                                    std::map<std::string, std::string> metadata) {
  std::vector<TensorInfo> tensors;
  uint64_t data_bytes = 0;
  for (const TensorSpec& spec : specs) {
    STRATA_ASSIGN_OR_RETURN(TensorInfo tensor, checked(path, spec));
    data_bytes += tensor.bytes;
    if (data_bytes > static_cast<uint64_t>(INT64_MAX))
      return invalid_argument(
          fmt::format("{}: tensors up to '{}' have more than 2^63 bytes. HINT: correct the shapes",
                      path, spec.name));
    tensors.push_back(std::move(tensor));
  }
  // Wider elements first, so that each tensor is aligned to its own; then by name.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    return invalid_argument(fmt::format(
        "{}: tensor '{}' is declared twice. HINT: give each its own name", path, *twice));

  const std::string header = header_text(tensors, metadata);
  std::byte length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  std::vector<Entry> entries;
  uint64_t offset = 8 + header.size();
  for (TensorInfo& tensor : tensors) {
    tensor.offset = offset;
    offset += tensor.bytes;
    entries.push_back({std::move(tensor), 0});
  }
  STRATA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, offset));
  STRATA_RETURN_IF_ERROR(file.write_at(0, length));
  STRATA_RETURN_IF_ERROR(file.write_at(8, std::as_bytes(std::span(header))));
  return SafetensorsWriter(std::move(file), std::move(entries), offset);
}

Status SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto it = index_.find(name);
  if (it == index_.end())
    return not_found(
        fmt::format("{}: tensor '{}' was not declared. HINT: name it when the file is created",
                    file_.path(), name));
  Entry& entry = entries_[it->second];
  if (bytes.size() > entry.info.bytes - entry.written)
    return invalid_argument(fmt::format(
        "{}: tensor '{}' is {} of {} bytes; {} are written and {} more are given. HINT: the data "
        "do not fit the declared shape",
        file_.path(), name, describe(entry.info), entry.info.bytes, entry.written, bytes.size()));
  STRATA_RETURN_IF_ERROR(file_.write_at(entry.info.offset + entry.written, bytes));
  entry.written += bytes.size();
  return {};
}

Status SafetensorsWriter::finish() {
  for (const Entry& entry : entries_)
    if (entry.written != entry.info.bytes)
      return wrong_state(fmt::format(
          "{}: tensor '{}' ({}) has {} of its {} bytes. HINT: write every declared tensor whole",
          file_.path(), entry.info.name, describe(entry.info), entry.written, entry.info.bytes));
  return file_.commit();
}

}  // namespace strata::formats
