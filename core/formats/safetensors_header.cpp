#include "strata/formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "strata/formats/json.h"

namespace strata::formats {
namespace {

struct DTypeRow {
  const char* name;
  int64_t size;
};
// By the value of DType.
constexpr DTypeRow kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

constexpr const char* kDamaged = "HINT: the file is damaged or cut off; fetch or save it again";

// One line of the header: "name": {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}.
class EntryParser {
 public:
  EntryParser(const std::string& path, uint64_t data_begin, uint64_t data_bytes)
      : path_(path), data_begin_(data_begin), data_bytes_(data_bytes) {}

  Result<TensorInfo> parse(const std::string& name, const Json& entry) const {
    TensorInfo tensor;
    tensor.name = name;
    if (!entry.is_object()) return error(name, "its entry is not an object");
    for (const auto& [key, value] : entry.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        return error(name, fmt::format("unknown field '{}'", key));
    STRATA_RETURN_IF_ERROR(parse_dtype(entry, tensor));
    STRATA_RETURN_IF_ERROR(parse_shape(entry, tensor));
    STRATA_RETURN_IF_ERROR(parse_offsets(entry, tensor));
    return tensor;
  }

 private:
  Status error(const std::string& name, const std::string& what) const {
    return invalid_argument(fmt::format("{}: tensor '{}': {}. {}", path_, name, what, kDamaged));
  }

  Status parse_dtype(const Json& entry, TensorInfo& tensor) const {
    const auto it = entry.find("dtype");
    if (it == entry.end() || !it->is_string())
      return error(tensor.name, "'dtype' is missing or not a string");
    const auto& text = it->get_ref<const std::string&>();
    const auto dtype = dtype_from_name(text);
    if (!dtype) {
      std::vector<std::string> known;
      for (const DTypeRow& row : kDTypes) known.emplace_back(row.name);
      return unsupported(fmt::format("{}: tensor '{}': unknown dtype '{}'. HINT: known are {}",
                                     path_, tensor.name, text, fmt::join(known, ", ")));
    }
    tensor.dtype = *dtype;
    return {};
  }

  Status parse_shape(const Json& entry, TensorInfo& tensor) const {
    const auto it = entry.find("shape");
    if (it == entry.end() || !it->is_array())
      return error(tensor.name, "'shape' is missing or not an array");
    for (const Json& dimension : *it) {
      if (!dimension.is_number_unsigned() ||
          dimension.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        return error(tensor.name,
                     fmt::format("shape {} has a dimension that is not an integer of 0 or more",
                                 it->dump()));
      tensor.shape.push_back(dimension.get<int64_t>());
    }
    const auto size = tensor_size(tensor.dtype, tensor.shape);
    if (!size)
      return error(tensor.name, fmt::format("shape {} of {} has more than 2^63 bytes",
                                            format_shape(tensor.shape), dtype_name(tensor.dtype)));
    tensor.numel = size->numel;
    tensor.bytes = size->bytes;
    return {};
  }

  Status parse_offsets(const Json& entry, TensorInfo& tensor) const {
    const auto it = entry.find("data_offsets");
    if (it == entry.end() || !it->is_array() || it->size() != 2 || !(*it)[0].is_number_unsigned() ||
        !(*it)[1].is_number_unsigned())
      return error(tensor.name, "'data_offsets' is missing or not two integers of 0 or more");
    const auto begin = (*it)[0].get<uint64_t>();
    const auto end = (*it)[1].get<uint64_t>();
    if (begin > end || end > data_bytes_)
      return error(tensor.name, fmt::format("offsets [{}, {}) lie outside of the {} bytes of data",
                                            begin, end, data_bytes_));
    if (end - begin != tensor.bytes)
      return error(tensor.name, fmt::format("offsets [{}, {}) hold {} bytes, but {} {} needs {}",
                                            begin, end, end - begin, dtype_name(tensor.dtype),
                                            format_shape(tensor.shape), tensor.bytes));
    tensor.offset = data_begin_ + begin;
    return {};
  }

  const std::string& path_;
  uint64_t data_begin_;
  uint64_t data_bytes_;
};

Status parse_metadata(const std::string& path, const Json& json,
                      std::map<std::string, std::string>& metadata) {
  if (!json.is_object())
    return invalid_argument(fmt::format("{}: '__metadata__' is {}, not an object. {}", path,
                                        json.type_name(), kDamaged));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return invalid_argument(
          fmt::format("{}: '__metadata__' has '{}' of type {}, not a string. {}", path, key,
                      value.type_name(), kDamaged));
    metadata[key] = value.get<std::string>();
  }
  return {};
}

// The data of the sorted tensors must cover [data_begin, data_begin + data_bytes) exactly.
Status check_coverage(const std::string& path, const std::vector<TensorInfo>& tensors,
                      uint64_t data_begin, uint64_t data_bytes) {
  uint64_t end = data_begin;
  const std::string* before = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != end)
      return invalid_argument(fmt::format(
          "{}: tensor '{}' begins at offset {}, but {} ends at {} ({}). {}", path, tensor.name,
          tensor.offset - data_begin, before ? fmt::format("'{}'", *before) : "the header",
          end - data_begin, tensor.offset < end ? "overlap" : "gap", kDamaged));
    end += tensor.bytes;
    before = &tensor.name;
  }
  if (end != data_begin + data_bytes)
    return invalid_argument(
        fmt::format("{}: {} bytes of data follow the header, but its tensors hold {}. {}", path,
                    data_bytes, end - data_begin, kDamaged));
  return {};
}

}  // namespace

const char* dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

int64_t dtype_size(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kDTypes); ++i)
    if (name == kDTypes[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<TensorSize> tensor_size(DType dtype, const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t dimension : shape)
    if (dimension < 0 || __builtin_mul_overflow(numel, dimension, &numel)) return std::nullopt;
  int64_t bytes;
  if (__builtin_mul_overflow(numel, dtype_size(dtype), &bytes)) return std::nullopt;
  return TensorSize{numel, static_cast<uint64_t>(bytes)};
}

std::string format_shape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string describe(const TensorInfo& tensor) {
  return fmt::format("{} {}", dtype_name(tensor.dtype), format_shape(tensor.shape));
}

Result<Header> parse_header(const std::string& path, std::string_view text, uint64_t data_begin,
                            uint64_t data_bytes) {
  STRATA_ASSIGN_OR_RETURN(const Json json, parse_json(text, path + " (header)"));
  if (!json.is_object())
    return invalid_argument(
        fmt::format("{}: the header is {}, not an object. {}", path, json.type_name(), kDamaged));
  Header header;
  const EntryParser parser(path, data_begin, data_bytes);
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      STRATA_RETURN_IF_ERROR(parse_metadata(path, entry, header.metadata));
      continue;
    }
    STRATA_ASSIGN_OR_RETURN(TensorInfo tensor, parser.parse(name, entry));
    header.tensors.push_back(std::move(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  STRATA_RETURN_IF_ERROR(check_coverage(path, header.tensors, data_begin, data_bytes));
  return header;
}

}  // namespace strata::formats
