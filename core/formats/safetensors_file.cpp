#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "strata/base/text.h"
#include "strata/formats/safetensors.h"
#include "strata/formats/safetensors_header.h"

namespace strata::formats {
namespace {

Status truncated(const std::string& path, const std::string& what) {
  return invalid_argument(fmt::format(
      "{}: {}. HINT: the file is cut off or not a safetensors file; fetch or save it again", path,
      what));
}

uint64_t read_little_endian(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint64_t>(bytes[i]);
  return value;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) {
    const int error = errno;
    const std::string what = fmt::format("cannot read '{}': {}. HINT: check the path and its mode",
                                         path, std::strerror(error));
    return error == ENOENT || error == ENOTDIR ? not_found(what) : io_error(what);
  }
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0)
    return io_error(
        fmt::format("cannot read '{}': {}. HINT: check the disk", path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode))
    return invalid_argument(
        fmt::format("'{}' is not a file. HINT: give a .safetensors file", path));
  file.size_ = static_cast<uint64_t>(info.st_size);
  if (file.size_ < 8)
    return truncated(
        path, fmt::format("has {} bytes, fewer than the 8 of the header's length", file.size_));
  void* map = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, file.fd_, 0);
  if (map == MAP_FAILED)
    return io_error(
        fmt::format("cannot map the {} bytes of '{}': {}. HINT: check the limit on "
                    "address space (ulimit -v)",
                    file.size_, path, std::strerror(errno)));
  file.map_ = static_cast<const std::byte*>(map);

  const uint64_t header_bytes = read_little_endian(file.map_);
  if (header_bytes > kMaxHeaderBytes)
    return truncated(path, fmt::format("says that its header has {} bytes, more than the {} that "
                                       "are allowed",
                                       header_bytes, kMaxHeaderBytes));
  if (header_bytes > file.size_ - 8)
    return truncated(path, fmt::format("says that its header has {} bytes, but only {} follow",
                                       header_bytes, file.size_ - 8));
  const std::string_view text(reinterpret_cast<const char*>(file.map_ + 8), header_bytes);
  const uint64_t data_begin = 8 + header_bytes;
  STRATA_ASSIGN_OR_RETURN(Header header,
                          parse_header(path, text, data_begin, file.size_ - data_begin));
  file.tensors_ = std::move(header.tensors);
  file.metadata_ = std::move(header.metadata);
  for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_[file.tensors_[i].name] = i;
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  map_ = std::exchange(other.map_, nullptr);
  size_ = other.size_;
  tensors_ = std::move(other.tensors_);
  index_ = std::move(other.index_);
  metadata_ = std::move(other.metadata_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() { close(); }

void SafetensorsFile::close() {
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), size_);
  if (fd_ >= 0) ::close(fd_);
  map_ = nullptr;
  fd_ = -1;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

Result<TensorInfo> SafetensorsFile::require(const std::string& name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  const std::string nearest = text::nearest(name, names);
  return not_found(fmt::format(
      "{}: no tensor '{}' among its {}. HINT: {}", path_, name, names.size(),
      nearest.empty() ? "the file is of another model" : fmt::format("it has '{}'", nearest)));
}

std::span<const std::byte> SafetensorsFile::data(const TensorInfo& tensor) const {
  STRATA_CHECK(tensor.offset <= size_ && tensor.bytes <= size_ - tensor.offset)
      << "'" << tensor.name << "' is not a tensor of '" << path_ << "'";
  return {map_ + tensor.offset, static_cast<size_t>(tensor.bytes)};
}

Status SafetensorsFile::read(const std::string& name, int64_t first,
                             std::span<std::byte> out) const {
  STRATA_ASSIGN_OR_RETURN(const TensorInfo tensor, require(name));
  const auto size = static_cast<uint64_t>(dtype_size(tensor.dtype));
  STRATA_CHECK(out.size() % size == 0) << out.size() << " bytes for elements of " << size;
  const auto count = static_cast<int64_t>(out.size() / size);
  if (first < 0 || first > tensor.numel || count > tensor.numel - first)
    return invalid_argument(fmt::format(
        "{}: tensor '{}': elements [{}, {} + {}) asked for, but {} has {}. HINT: the model's "
        "configuration and the file do not fit",
        path_, name, first, first, count, describe(tensor), tensor.numel));
  uint64_t offset = tensor.offset + static_cast<uint64_t>(first) * size;
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return io_error(fmt::format(
          "{}: tensor '{}': cannot read {} bytes at offset {}: {}. HINT: "
          "check the disk; the file may have been cut off meanwhile",
          path_, name, out.size(), offset, n == 0 ? "end of file" : std::strerror(errno)));
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

}  // namespace strata::formats
