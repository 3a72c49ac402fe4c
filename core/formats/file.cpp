#include "strata/formats/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

namespace strata::formats {
namespace {

const char* write_hint(int error) {
  switch (error) {
    case ENOENT: return "create the folder first";
    case ENOTDIR: return "a part of the path is a file; choose another path";
    case EISDIR: return "a folder has this name; choose another path";
    case EACCES:
    case EPERM:
    case EROFS: return "choose a folder that this user may write to";
    case ENOSPC:
    case EDQUOT: return "free space on this disk, or choose another";
    case EFBIG: return "the limit on file sizes is too low (ulimit -f)";
    default: return "check the disk and the path";
  }
}

Status write_error(const std::string& path, const char* action, int error) {
  return io_error(fmt::format("cannot {} '{}': {}. HINT: {}", action, path, std::strerror(error),
                              write_hint(error)));
}

// Also syncs the folder's own entry for a file that was renamed in it.
void sync_parent(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  sync_folder(parent.empty() ? std::string(".") : parent.string());
}

// "a/b.json" -> "a/.b.json.PID.N.part"
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  const std::filesystem::path p(path);
  return (p.parent_path() /
          fmt::format(".{}.{}.{}.part", p.filename().string(), ::getpid(), count.fetch_add(1)))
      .string();
}

Status read_error(const std::string& path, int error) {
  const std::string what = fmt::format("cannot read '{}': {}", path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(what + ". HINT: check the path");
  if (error == EISDIR) return invalid_argument(what + ". HINT: give a file, not a folder");
  if (error == EACCES) return io_error(what + ". HINT: this user may not read it; see its mode");
  return io_error(what + ". HINT: check the disk and the path");
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return read_error(path, errno);
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
  if (error == 0 && !S_ISREG(info.st_mode)) {
    ::close(fd);
    return invalid_argument(
        fmt::format("cannot read '{}': it is a pipe or a device. HINT: every rank reads it, more "
                    "than once; give a file",
                    path));
  }
  std::string content;
  // One more than the size shows the end of the file. Files of /proc tell no size.
  if (error == 0) content.resize(std::max<size_t>(static_cast<size_t>(info.st_size) + 1, 4096));
  size_t filled = 0;
  while (error == 0) {
    if (filled == content.size()) content.resize(2 * filled);
    const ssize_t n = ::read(fd, content.data() + filled, content.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error = errno;
    if (n <= 0) break;
    filled += static_cast<size_t>(n);
  }
  ::close(fd);
  if (error != 0) return read_error(path, error);
  content.resize(filled);
  return content;
}

Status write_file_atomically(const std::string& path, std::string_view content) {
  STRATA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  STRATA_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(content))));
  return file.commit();
}

Result<AtomicFile> AtomicFile::create(const std::string& path, uint64_t size) {
  std::string temporary = temporary_name(path);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return write_error(path, "write", errno);
  AtomicFile file(path, std::move(temporary), fd);
  if (size == 0) return file;
  if (size > static_cast<uint64_t>(INT64_MAX)) return write_error(path, "write", EFBIG);
  // File systems that cannot reserve space find out later.
  if (::fallocate(fd, 0, 0, static_cast<off_t>(size)) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS && errno != EINVAL) {
    const int error = errno;
    return write_error(path, fmt::format("reserve {} bytes for", size).c_str(), error);
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  discard();
  path_ = std::move(other.path_);
  temporary_ = std::move(other.temporary_);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
  fd_ = -1;
}

Status AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  STRATA_CHECK(fd_ >= 0) << "'" << path_ << "' was committed or moved away";
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return write_error(path_, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status AtomicFile::commit() {
  STRATA_CHECK(fd_ >= 0) << "'" << path_ << "' was committed or moved away";
  int error = ::fsync(fd_) != 0 ? errno : 0;
  if (::close(fd_) != 0 && error == 0) error = errno;
  fd_ = -1;
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary_.c_str());
    return write_error(path_, "write", error);
  }
  sync_parent(path_);
  return {};
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// ---- FolderLock ----

Result<FolderLock> FolderLock::take(const std::string& folder, std::chrono::milliseconds patience) {
  FolderLock lock;
  lock.fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock.fd_ < 0) return write_error(folder, "lock", errno);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // the file system has no locks
    if (std::chrono::steady_clock::now() >= deadline) {
      return io_error(fmt::format("another process is writing to '{}'", folder));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between two tries
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace strata::formats
