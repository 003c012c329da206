// A program to look into: keeps 40 MiB, says that it has begun, and goes on until its stdin ends.
// For it the clock stands still once there is an `s` on stdin; each `t` is a second that passes.
// Usage: endpoint_worker wait | fork | steps | sites
// steps: for each `a` on stdin it allocates 10 MiB more, for each `f` it frees 20 MiB of those 40.
// For each byte on stdin it says that it is done.
// sites: it allocates from 16,384 places.

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../clock.h"

namespace {

bool stdin_ended() {
  pollfd input = {0, POLLIN, 0};
  return poll(&input, 1, 0) != 0;
}

// Children allocate, and end as programs do: by exit().
bool fork_once() {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    for (int i = 0; i < 100; ++i) free(malloc(static_cast<size_t>(i) * 1000));
    exit(3);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3;
}

void* filled(void* block, size_t size) { return memset(block, 1, size); }

}  // namespace

extern "C" [[gnu::noinline]] void* allocate_kept(size_t size) { return filled(malloc(size), size); }

extern "C" [[gnu::noinline]] void* allocate_later(size_t size) {
  return filled(malloc(size), size);
}

namespace {

void* blocks[4096];
void* more[1024];

void* of_sites[1 << 14];

[[gnu::noinline]] void allocate_by_path(int depth, size_t path) {
  if (depth == 0) {
    of_sites[path] = malloc(16);
    return;
  }
  allocate_by_path(depth - 1, 2 * path);
  allocate_by_path(depth - 1, 2 * path + 1);
  asm volatile("");  // no tail call
}

bool do_steps() {
  for (char step; read(0, &step, 1) == 1;) {
    if (step == 'a')
      for (void*& block : more) block = allocate_later(10 << 10);
    if (step == 'f')
      for (size_t i = 0; i < 2048; ++i) free(blocks[i]);
    if (step == 's') test_clock::stop();
    if (step == 't') test_clock::pass_ms(1000);
    if (write(1, "done\n", 5) != 5) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  for (void*& block : blocks) block = allocate_kept(10 << 10);
  if (argc > 1 && strcmp(argv[1], "sites") == 0) allocate_by_path(14, 0);
  if (write(1, "begun\n", 6) != 6) return 1;
  if (argc > 1 && strcmp(argv[1], "fork") == 0) {
    while (!stdin_ended())
      if (!fork_once()) return 2;
  } else if (!do_steps()) {
    return 1;
  }
  if (argc > 1 && strcmp(argv[1], "steps") == 0) return 0;
  return blocks[7] == nullptr || more[7] != nullptr ? 1 : 0;
}
