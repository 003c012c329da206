// With LARDER_BACKGROUND_PURGE a program's free memory is purged while it sleeps. The thread that
// does it does not exist in a child of fork, and does not disturb a fork.

#include "support.h"

using namespace alloctest;

namespace {

void* blocks[100'000];

// This thread's heap caches the rest of the free memory: up to a megabyte.
constexpr size_t kAllowedBytes = 4 * kMiB;

void fill_and_free() {
  for (void*& block : blocks) {
    block = malloc(1000);
    CHECK(block != nullptr);
    memset(block, 1, 1000);
  }
  for (void* block : blocks) free(block);
}

}  // namespace

int main() {
  begin("background_purge");
  for (int round = 0; round < 2; ++round) {
    const size_t before = rss_bytes();
    fill_and_free();
    CHECK_MSG(rss_bytes() > before + 50 * kMiB, "round %d: nothing was touched", round);
    // Or the watchdog ends the test.
    while (rss_bytes() > before + kAllowedBytes) sleep_ms(10);
  }
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    fill_and_free();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}
