#include "strata/ccl_cpu/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace strata::ccl {

Failure system_failure(const std::string& doing) {
  const int number = errno;
  return {number == ENOMEM || number == ENOSPC || number == EMFILE || number == ENFILE
              ? STRATA_E_OUT_OF_MEMORY
              : STRATA_E_IO,
          doing + ": " + std::strerror(number)};
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Failure Mapping::map(const FileDescriptor& file, size_t bytes, Mapping* out) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    return system_failure("mapping " + std::to_string(bytes) + " shared bytes");
  }
  // Fewer translations, where the system has huge pages for shared memory.
  ::madvise(data, bytes, MADV_HUGEPAGE);
  Mapping mapping;
  mapping.data_ = static_cast<char*>(data);
  mapping.bytes_ = bytes;
  *out = std::move(mapping);
  return {};
}

Failure make_shared_file(const char* name, size_t bytes, FileDescriptor* out) {
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (!file.is_open()) {
    return system_failure(
        std::string("making shared memory") +
        (errno == EMFILE ? " (HINT: raise the limit of open files, ulimit -n)" : ""));
  }
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return system_failure(
        "sizing shared memory to " + std::to_string(bytes) + " bytes" +
        (errno == EFBIG ? " (HINT: shared memory counts as a file; raise ulimit -f)" : ""));
  }
  *out = std::move(file);
  return {};
}

Failure open_shared_file(pid_t pid, int fd, FileDescriptor* out, size_t* bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat about {};
  if (!file.is_open() || ::fstat(file.get(), &about) != 0) {
    Failure failure = system_failure("opening shared memory '" + path + "'");
    failure.text +=
        ". HINT: the process must be alive, of the same user and in the same PID namespace; across "
        "containers or hosts use the library over MPI";
    return failure;
  }
  *bytes = static_cast<size_t>(about.st_size);
  *out = std::move(file);
  return {};
}

uint64_t random_number() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    number = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
             (static_cast<uint64_t>(::getpid()) << 40);
  }
  return number == 0 ? 1 : number;
}

}  // namespace strata::ccl
