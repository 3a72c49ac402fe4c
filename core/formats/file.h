// Files read whole and written whole or not at all.
#ifndef STRATA_FORMATS_FILE_H_
#define STRATA_FORMATS_FILE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "strata/base/status.h"

namespace strata::formats {

// The whole content of a file.
//
// Returns not_found (no such file), invalid_argument (a folder, a pipe, a device), io_error
// (unreadable); each names the path.
Result<std::string> read_file(const std::string& path);

// Replaces `path` by `content`: a reader sees the old file or the new one, never a part, also
// after a crash.
//
// Returns io_error when the folder is missing or not writable or the disk is full.
// On error  `path` is as it was and nothing else is left behind.
Status write_file_atomically(const std::string& path, std::string_view content);

// A file that appears under its name when it is complete.
//
// Bytes go to a temporary name in the same folder; commit() syncs them to disk and renames. An
// object that is destroyed before leaves nothing behind. Not thread-safe.
class AtomicFile {
 public:
  // With `size` given, the space is reserved now, so that a full disk is noticed before any work.
  //
  // Returns io_error with path and reason.
  static Result<AtomicFile> create(const std::string& path, uint64_t size = 0);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Writes all bytes at `offset`.
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  // Makes the file visible under its name. Nothing may be written after it.
  Status commit();

  const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  void discard();

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

// Syncs the names in a folder to disk, after a rename in it. Some file systems cannot; the rename
// itself has been done then.
void sync_folder(const std::string& folder);

// One process at a time writes to a folder: a lock on the folder itself, which leaves no file and
// ends with the process, however that ends. File systems without locks let everybody in.
class FolderLock {
 public:
  // Waits up to `patience` for another process to end.
  //
  // Returns io_error when the folder cannot be opened, or another process holds it.
  static Result<FolderLock> take(const std::string& folder, std::chrono::milliseconds patience);

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  FolderLock() = default;
  int fd_ = -1;
};

}  // namespace strata::formats

#endif  // STRATA_FORMATS_FILE_H_
