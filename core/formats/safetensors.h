// The safetensors format of Hugging Face: an 8-byte little-endian header length, a JSON header,
// then the data of all tensors without a gap.
//
//   SafetensorsFile     reads one file, validated whole before the first byte is used
//   SafetensorsWriter   writes one file, tensor by tensor, in any order
//   SafetensorsFolder   one file or the shards of a Hugging Face folder, as one set of names
//
// Data are little-endian and row-major. Nothing here knows LibTorch: a tensor is a name, a dtype, a
// shape and bytes.
#ifndef STRATA_FORMATS_SAFETENSORS_H_
#define STRATA_FORMATS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/base/status.h"
#include "strata/formats/file.h"

namespace strata::formats {

// In the order by which the reference implementation sorts the tensors of a file, largest last.
enum class DType : int32_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

// The format's spelling, for example "BF16".
const char* dtype_name(DType dtype);
// Bytes of one element.
int64_t dtype_size(DType dtype);

// A tensor as it is declared to the writer.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // {} is a scalar
};

// A tensor of a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  uint64_t offset = 0;  // of its first byte in the file
  uint64_t bytes = 0;   // numel * dtype_size(dtype)
};

// For example "F32 [768, 3072]".
std::string describe(const TensorInfo& tensor);

class SafetensorsFile {
 public:
  // Maps the file and validates header, names, dtypes, shapes and offsets.
  //
  // Returns not_found (no such file), io_error (unreadable), invalid_argument (truncated, header
  // longer than the file, unknown dtype, wrong size for dtype x shape, overlap, gap, range, a name
  // twice, ...). The message names file, tensor and values.
  static Result<SafetensorsFile> open(const std::string& path);

  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  // In the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // nullptr if there is none of this name. Valid as long as this object is.
  const TensorInfo* find(const std::string& name) const;
  // As find(), or not_found with the nearest name that is there.
  Result<TensorInfo> require(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // The mapped bytes of a tensor of this file; valid as long as this object is. Aligned to the
  // element size in files of the reference implementation and of our writer, else not.
  // The file must not be truncated by others meanwhile: use read() where that can happen.
  std::span<const std::byte> data(const TensorInfo& tensor) const;

  // Reads `out.size()` bytes that begin at element `first` of the flattened tensor, by pread().
  //
  // REQUIRES: out.size() is a multiple of the element size.
  // Returns   not_found (name), invalid_argument (range; values in the message), io_error.
  Status read(const std::string& name, int64_t first, std::span<std::byte> out) const;

 private:
  SafetensorsFile() = default;
  void close();

  std::string path_;
  int fd_ = -1;
  const std::byte* map_ = nullptr;
  uint64_t size_ = 0;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// Writes one file. Layout (order of data, header text, padding of the header with spaces to 8
// bytes) is that of the reference implementation, so equal tensors give equal bytes.
//
//   auto writer = SafetensorsWriter::create(path, {{"w", DType::kF32, {2, 3}}, ...});
//   writer->write("w", bytes);   // whole, or in consecutive parts; tensors in any order
//   writer->finish();
//
// Until finish() the bytes lie under a temporary name in the same folder, which an object that is
// destroyed before takes away.
class SafetensorsWriter {
 public:
  // Reserves the whole size on disk.
  //
  // Returns invalid_argument (a name twice, the name "__metadata__", negative shape, size beyond
  // 2^63), io_error (folder missing or not writable, disk full).
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorSpec> tensors,
                                          std::map<std::string, std::string> metadata = {
                                              {"format", "pt"}});

  // Writes the next bytes of tensor `name`.
  //
  // Returns not_found (not declared), invalid_argument (more bytes than declared), io_error.
  Status write(const std::string& name, std::span<const std::byte> bytes);

  // Syncs and renames to the final name.
  //
  // Returns wrong_state (a tensor is incomplete; names it), io_error.
  // On error  nothing is left behind, an older file of this name stays.
  Status finish();

  // Of the whole file.
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct Entry {
    TensorInfo info;
    uint64_t written = 0;
  };
  SafetensorsWriter(AtomicFile file, std::vector<Entry> entries, uint64_t file_bytes);

  AtomicFile file_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
  uint64_t file_bytes_ = 0;
};

// The weights of a Hugging Face folder: `model.safetensors`, or the shards that
// `model.safetensors.index.json` lists. Also opens a single file by its path.
class SafetensorsFolder {
 public:
  // Returns not_found (neither file is there; says what is), or the error of a shard. Every name of
  // the index must be in the shard that the index says.
  static Result<SafetensorsFolder> open(const std::string& path);

  // Sorted.
  std::vector<std::string> names() const;
  const TensorInfo* find(const std::string& name) const;
  // As find(), or not_found with the nearest name that is there.
  Result<TensorInfo> require(const std::string& name) const;
  // The file that has the tensor.
  //
  // REQUIRES: find(name) != nullptr.
  const SafetensorsFile& file_of(const std::string& name) const;
  // Mapped bytes; see SafetensorsFile::data().
  Result<std::span<const std::byte>> data(const std::string& name) const;
  // See SafetensorsFile::read().
  Status read(const std::string& name, int64_t first, std::span<std::byte> out) const;

 private:
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace strata::formats

#endif  // STRATA_FORMATS_SAFETENSORS_H_
