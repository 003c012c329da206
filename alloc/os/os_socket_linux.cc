#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"
#include "os/os_socket.h"
#include "os/raw_call.h"

namespace larder::os {

namespace {

long bits(const void* p) { return reinterpret_cast<long>(p); }

// Under a number that is none of the standard files', which may be closed.
int beyond_standard(long file) {
  if (file < 0 || file > 2) return int(file);
  long other = syscall6(SYS_fcntl, file, F_DUPFD_CLOEXEC, 3, 0, 0, 0);
  close(int(file));
  return int(other);
}

int new_socket(int family) {
  return beyond_standard(
      syscall6(SYS_socket, family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0, 0));
}

bool find_socket(const char* path, struct stat* status) {
  return syscall6(SYS_newfstatat, AT_FDCWD, bits(path), bits(status), AT_SYMLINK_NOFOLLOW, 0, 0) ==
             0 &&
         S_ISSOCK(status->st_mode);
}

}  // namespace

bool leave_files(unsigned first) {
  constexpr long kCloseRange = 436, kUnshare = 2;
  return syscall6(kCloseRange, long(first), long(UINT32_MAX), kUnshare, 0, 0, 0) == 0;
}

void close_standard_files() {
  for (int file = 0; file <= 2; ++file) close(file);
}

void name_thread(const char* name) { syscall6(SYS_prctl, PR_SET_NAME, bits(name), 0, 0, 0, 0); }

int listen_at(const sockaddr* address, socklen_t bytes) {
  int socket = new_socket(address->sa_family);
  if (socket < 0) return socket;
  long error = 0;
  if (address->sa_family == AF_UNIX) {
    // The file is made with the socket's mode.
    error = syscall6(SYS_fchmod, socket, 0600, 0, 0, 0, 0);
  } else {
    int on = 1;
    syscall6(SYS_setsockopt, socket, SOL_SOCKET, SO_REUSEADDR, bits(&on), sizeof on, 0);
  }
  if (error == 0) error = syscall6(SYS_bind, socket, bits(address), long(bytes), 0, 0, 0);
  if (error == 0) error = syscall6(SYS_listen, socket, 64, 0, 0, 0, 0);
  if (error == 0) return socket;
  close(socket);
  return int(error);
}

int hold_folder_of(const char* path) {
  char folder[sizeof(sockaddr_un::sun_path) + 2] = ".";
  if (const char* end = strrchr(path, '/')) {
    auto length = size_t(end - path) + 1;
    if (length >= sizeof folder) return -ENAMETOOLONG;
    memcpy(folder, path, length);
    folder[length] = 0;
  }
  int file = beyond_standard(
      syscall6(SYS_openat, AT_FDCWD, bits(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0, 0));
  for (int tries = 0; file >= 0; ++tries) {
    long error = syscall6(SYS_flock, file, LOCK_EX | LOCK_NB, 0, 0, 0, 0);
    if (error == 0) break;
    if (error == -EWOULDBLOCK && tries < 100) {
      sleep_ms(10);
      continue;
    }
    close(file);
    file = int(error);
  }
  return file;
}

bool is_dead_socket(const sockaddr_un& address) {
  struct stat status = {};
  if (!find_socket(address.sun_path, &status) ||
      long(status.st_uid) != syscall6(SYS_geteuid, 0, 0, 0, 0, 0, 0))
    return false;
  int socket = new_socket(AF_UNIX);
  if (socket < 0) return false;
  long answer = syscall6(SYS_connect, socket, bits(&address), sizeof address, 0, 0, 0);
  close(socket);
  return answer == -ECONNREFUSED;
}

FileId id_of_socket(const char* path) {
  struct stat status = {};
  if (!find_socket(path, &status)) return {};
  return {status.st_dev, status.st_ino};
}

void remove(const char* path) { syscall6(SYS_unlinkat, AT_FDCWD, bits(path), 0, 0, 0, 0); }

int accept(int socket) {
  return beyond_standard(syscall6(SYS_accept4, socket, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0));
}

long receive(int connection, void* to, size_t bytes) {
  return syscall6(SYS_recvfrom, connection, bits(to), long(bytes), 0, 0, 0);
}

long send(int connection, const void* from, size_t bytes) {
  return syscall6(SYS_sendto, connection, bits(from), long(bytes), MSG_NOSIGNAL, 0, 0);
}

int poll(pollfd* files, size_t count, int most_ms) {
  timespec time = {most_ms / 1000, long(most_ms % 1000) * 1000000};
  return int(syscall6(SYS_ppoll, bits(files), long(count), most_ms < 0 ? 0 : bits(&time), 0, 0, 0));
}

}  // namespace larder::os
