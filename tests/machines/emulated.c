// Preloaded into an emulated program, for what the emulator leaves to the kernel or does not have:
// what the program executes is emulated, too, and process_vm_readv reads /proc/PID/mem.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

enum { kMost = 1000, kLongest = 4096 };

// How the emulator is started with a program, whose preload is none of the emulator's own.
typedef struct {
  char* words[kMost + 4];
  char* environment[kMost + 1];
  char preload[kLongest];
} Emulator;

static int is_emulated(const char* path) {
  Elf64_Ehdr header;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t got = read(file, &header, sizeof header);
  close(file);
  return got == sizeof header && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_machine == EM_AARCH64;
}

static void prepare(Emulator* it, const char* path, char* const words[],
                    char* const environment[]) {
  static char* const start[] = {"/usr/bin/qemu-aarch64", "-0"};
  memset(it, 0, sizeof *it);
  memcpy(it->words, start, sizeof start);
  it->words[2] = words[0];
  it->words[3] = (char*)path;
  for (int i = 1; i < kMost && words[i] != NULL; ++i) it->words[i + 3] = words[i];
  int count = 0;
  strcpy(it->preload, "QEMU_SET_ENV=LD_PRELOAD=");
  for (; *environment != NULL && count < kMost - 1; ++environment) {
    if (strncmp(*environment, "QEMU_SET_ENV=", 13) == 0) continue;
    if (strncmp(*environment, "LD_PRELOAD=", 11) != 0)
      it->environment[count++] = *environment;
    else
      strncpy(it->preload + 24, *environment + 11, kLongest - 25);
  }
  it->environment[count] = it->preload;
}

int execv(const char* path, char* const words[]) {
  if (!is_emulated(path)) return NEXT(execv)(path, words);
  Emulator it;
  prepare(&it, path, words, environ);
  return NEXT(execve)(it.words[0], it.words, it.environment);
}

int execvp(const char* path, char* const words[]) {
  return is_emulated(path) ? execv(path, words) : NEXT(execvp)(path, words);
}

int posix_spawnp(pid_t* id, const char* path, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const words[],
                 char* const environment[]) {
  if (!is_emulated(path))
    return NEXT(posix_spawnp)(id, path, actions, attributes, words, environment);
  Emulator it;
  prepare(&it, path, words, environment);
  return NEXT(posix_spawnp)(id, it.words[0], actions, attributes, it.words, it.environment);
}

ssize_t process_vm_readv(pid_t id, const struct iovec* local, unsigned long local_count,
                         const struct iovec* remote, unsigned long remote_count,
                         unsigned long flags) {
  (void)local_count, (void)flags;  // one, and 0
  char name[40];
  snprintf(name, sizeof name, "/proc/%d/mem", (int)id);
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  size_t got = 0;
  for (unsigned long i = 0; i < remote_count; ++i) {
    ssize_t part =
        pread(file, (char*)local->iov_base + got, remote[i].iov_len, (off_t)remote[i].iov_base);
    if (part > 0) got += (size_t)part;
    if (part != (ssize_t)remote[i].iov_len) break;
  }
  close(file);
  return got > 0 ? (ssize_t)got : -1;
}
