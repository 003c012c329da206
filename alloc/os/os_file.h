// Files in place of memory, and a pipe for fork. By libc's calls: not before libc is set up, and
// not in signal handlers. errno stays.
#pragma once

#include "base/base.h"

namespace larder::os {

// Creates a file without a name in this directory, or beside this path: a descriptor, or -errno.
int create_unnamed(const char* path);
// Opens for reading and writing: a descriptor, or -errno.
int open_to_write(const char* path);
// 0, or -errno.
int set_file_size(int file, uint64_t size_bytes);

struct FileKind {
  bool in_memory = false;     // tmpfs or hugetlbfs
  size_t page_bytes = 0;      // hugetlbfs has its own
  uint64_t end = UINT64_MAX;  // the size of a regular file
};
FileKind file_kind(int file);

// Maps the file from `offset` on over what is mapped at `place`: 0, or -errno, and then nothing may
// be mapped there. A shared mapping writes to the file.
int map_file(void* place, size_t size_bytes, int file, uint64_t offset, bool shared);

// False: no pipe, and both ends are -1.
bool make_pipe(int (&ends)[2]);

// nullptr: unknown.
const char* error_text(int error);

}  // namespace larder::os
