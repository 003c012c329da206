// Files that take the place of memory, and what fork needs beside: by libc's calls, so not before
// it is set up and not in signal handlers. errno stays as it is.
#pragma once

#include "base/base.h"

namespace larder::os {

// A new file that no name leads to, in this directory, or where a name would begin with this path:
// a descriptor, or -errno.
int create_unnamed(const char* path);
// To read and write: a descriptor, or -errno.
int open_to_write(const char* path);
// 0, or -errno.
int set_file_size(int file, uint64_t size_bytes);

struct FileKind {
  bool in_memory = false;     // of tmpfs or hugetlbfs
  size_t page_bytes = 0;      // bytes: hugetlbfs has its own
  uint64_t end = UINT64_MAX;  // its size, if it is a regular file
};
FileKind file_kind(int file);

// The file's bytes from `offset` on take the place of what is mapped at `place`: 0, or -errno, and
// then nothing may be mapped there any more. Writes go to the file if it is shared.
int map_file(void* place, size_t size_bytes, int file, uint64_t offset, bool shared);

// False: there is none, and both are -1.
bool make_pipe(int (&ends)[2]);

}  // namespace larder::os
