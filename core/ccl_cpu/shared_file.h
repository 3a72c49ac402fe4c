// Memory files that processes of one user share. They have no name in any file system, so nothing
// is left behind when every process that has one open or mapped is gone, however it ended.
#ifndef STRATA_CCL_CPU_SHARED_FILE_H_
#define STRATA_CCL_CPU_SHARED_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "strata/ccl_cpu/failure.h"

namespace strata::ccl {

// A file descriptor that closes itself.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept { std::swap(fd_, other.fd_); }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Bytes of a shared file, mapped for reading and writing, unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  // Maps the first `bytes` bytes of the file.
  static Failure map(const FileDescriptor& file, size_t bytes, Mapping* out);

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// A new file of `bytes` zero bytes, which take memory only when they are touched. `name` shows up
// in /proc/PID/maps.
Failure make_shared_file(const char* name, size_t bytes, FileDescriptor* out);

// The file that process `pid` has open as `fd`. Works for the calling process, too.
Failure open_shared_file(pid_t pid, int fd, FileDescriptor* out, size_t* bytes);

// A number that nobody else has.
uint64_t random_number();

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_SHARED_FILE_H_
