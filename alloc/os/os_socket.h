// Sockets, as the endpoint needs them: raw system calls, no errno, nothing blocks but poll and, for
// a second, hold_folder_of.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"

namespace larder::os {

// From here on the calling thread has open files of its own, and none from `first` on: what it
// opens is no child's, and no number of the program's. False: Linux before 5.9, or a sandbox.
bool leave_files(unsigned first);
void close_standard_files();
// As `ps -L` and /proc show it; up to 15 characters.
void name_thread(const char* name);

// A listening socket, or -errno. One in the file system is the user's alone, from its beginning.
int listen_at(const sockaddr* address, socklen_t bytes);
// Of the file's folder, and nobody else who asks holds it meanwhile: a descriptor, or -errno; a
// second is waited for at most.
int hold_folder_of(const char* path);
// A socket of this user that nobody listens at any more: what a process leaves that was killed.
bool is_dead_socket(const sockaddr_un& address);
struct FileId {
  uint64_t device, inode;
  bool operator==(const FileId&) const = default;
};
// Of the socket that has this name; zero: none has.
FileId id_of_socket(const char* path);
void remove(const char* path);

// A connection, never one of the standard files, or -errno.
int accept(int socket);
// Bytes, 0 at the end, or -errno; -EAGAIN: none now.
long receive(int connection, void* to, size_t bytes);
long send(int connection, const void* from, size_t bytes);
// How many are ready, or -errno; `most_ms` below 0: as long as it takes.
int poll(pollfd* files, size_t count, int most_ms);

}  // namespace larder::os
