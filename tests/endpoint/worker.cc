// A program to look into: keeps 40 MiB, says that it has begun, and goes on until its stdin ends.
// Usage: endpoint_worker wait | fork

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

bool stdin_ended(int most_ms) {
  pollfd input = {0, POLLIN, 0};
  return poll(&input, 1, most_ms) != 0;
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

}  // namespace

extern "C" [[gnu::noinline]] void* allocate_kept(size_t size) {
  void* block = malloc(size);
  memset(block, 1, size);
  return block;
}

int main(int argc, char** argv) {
  static void* blocks[4096];
  for (void*& block : blocks) block = allocate_kept(10 << 10);
  if (write(1, "begun\n", 6) != 6) return 1;
  const bool forks = argc > 1 && strcmp(argv[1], "fork") == 0;
  while (!stdin_ended(forks ? 0 : 1000))
    if (forks && !fork_once()) return 2;
  return blocks[7] == nullptr ? 1 : 0;
}
