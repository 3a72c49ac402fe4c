// Inside this room: what reader and writer of safetensors share.
#ifndef STRATA_FORMATS_SAFETENSORS_HEADER_H_
#define STRATA_FORMATS_SAFETENSORS_HEADER_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/formats/safetensors.h"

namespace strata::formats {

// The reference implementation refuses longer headers.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

std::optional<DType> dtype_from_name(std::string_view name);

// Element count and byte size of a shape, or nothing if they exceed 63 bits or a dimension is
// negative.
struct TensorSize {
  int64_t numel;
  uint64_t bytes;
};
std::optional<TensorSize> tensor_size(DType dtype, const std::vector<int64_t>& shape);

// For example "[2, 3]".
std::string format_shape(const std::vector<int64_t>& shape);

// Parses and validates the JSON header. `data_begin` is the offset of the first tensor byte in the
// file, `data_bytes` what follows it. Tensors come back in the order of their data.
struct Header {
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};
Result<Header> parse_header(const std::string& path, std::string_view json, uint64_t data_begin,
                            uint64_t data_bytes);

}  // namespace strata::formats

#endif  // STRATA_FORMATS_SAFETENSORS_HEADER_H_
