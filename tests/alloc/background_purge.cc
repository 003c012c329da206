// What a program freed goes back to the system while it sleeps, if LARDER_BACKGROUND_PURGE asks
// for that, and the thread that does it survives neither in a child of fork nor in the way of one.

#include "support.h"

using namespace alloctest;

namespace {

void* blocks[100'000];

// The last of the free memory is only kept by this thread's heap: at most a megabyte.
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
    // Or the watchdog says that it never is.
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
