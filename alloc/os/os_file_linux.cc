#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/os.h"
#include "os/os_file.h"

extern "C" [[gnu::weak]] const char* strerrordesc_np(int) noexcept;

namespace larder::os {

namespace {

class SavedErrno {
 public:
  SavedErrno() : before_(errno) {}
  ~SavedErrno() { errno = before_; }

 private:
  int before_;
};

int or_error(int result) { return result >= 0 ? result : -errno; }

}  // namespace

int create_unnamed(const char* path) {
  SavedErrno saved;
  char name[PATH_MAX];
  struct stat status;
  bool directory = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  static constexpr char kInside[] = "/larder.XXXXXX", kBehind[] = ".XXXXXX";
  const char* ending = directory ? kInside : kBehind;
  if (strlen(path) + strlen(ending) >= sizeof name) return -ENAMETOOLONG;
  stpcpy(stpcpy(name, path), ending);
  int file = or_error(mkostemp(name, O_CLOEXEC));
  if (file >= 0) unlink(name);
  return file;
}

int open_to_write(const char* path) {
  SavedErrno saved;
  return or_error(::open(path, O_RDWR | O_CLOEXEC));
}

int set_file_size(int file, uint64_t size_bytes) {
  SavedErrno saved;
  return or_error(ftruncate(file, off_t(size_bytes)));
}

FileKind file_kind(int file) {
  SavedErrno saved;
  FileKind kind = {.page_bytes = page_size()};
  struct statfs system = {};
  if (fstatfs(file, &system) == 0) {
    bool huge = uint32_t(system.f_type) == HUGETLBFS_MAGIC;
    kind.in_memory = huge || uint32_t(system.f_type) == TMPFS_MAGIC;
    if (huge) kind.page_bytes = size_t(system.f_bsize);
  }
  struct stat status = {};
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) kind.end = uint64_t(status.st_size);
  return kind;
}

int map_file(void* place, size_t size_bytes, int file, uint64_t offset, bool shared) {
  SavedErrno saved;
  int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE | MAP_FIXED;
  void* p = mmap(place, size_bytes, PROT_READ | PROT_WRITE, flags, file, off_t(offset));
  if (p != MAP_FAILED) return 0;
  int error = errno;
  munmap(place, size_bytes);
  return -error;
}

bool make_pipe(int (&ends)[2]) {
  SavedErrno saved;
  if (pipe2(ends, O_CLOEXEC) == 0) return true;
  ends[0] = ends[1] = -1;
  return false;
}

const char* error_text(int error) {
#ifdef __GLIBC__
  // Its strerror may allocate.
  return &strerrordesc_np != nullptr ? strerrordesc_np(error) : nullptr;
#else
  return strerror(error);
#endif
}

}  // namespace larder::os
