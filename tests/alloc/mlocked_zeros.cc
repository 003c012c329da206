// calloc after mlockall: the kernel refuses to discard locked pages, so purged memory keeps its
// bytes and must not be taken for zeros. Needs CAP_IPC_LOCK or an unlimited RLIMIT_MEMLOCK, and
// says so if it has neither.

#include "../clock.h"
#include "support.h"

using namespace alloctest;

namespace {

const size_t kSizes[] = {8,        100,  1000,     5000,     20 * kKiB, 40 * kKiB, 100 * kKiB,
                         kMiB / 2, kMiB, 2 * kMiB, 3 * kMiB, 8 * kMiB,  33 * kMiB, 60 * kMiB};

void dirty_everything() {
  for (size_t size : kSizes) {
    const size_t count = size > kMiB ? 2 : (4 * kMiB) / size;
    static void* blocks[4 * kMiB / 8];
    for (size_t i = 0; i < count; ++i) {
      blocks[i] = malloc(size);
      CHECK(blocks[i] != nullptr);
      memset(blocks[i], 0xFF, size);
    }
    for (size_t i = 0; i < count; ++i) free(blocks[i]);
  }
}

void everything_is_zero(const char* when) {
  for (size_t size : kSizes) {
    const size_t count = size > kMiB ? 2 : kMiB / size;
    for (size_t i = 0; i < count; ++i) {
      void* block = calloc(1, size);
      CHECK_MSG(block != nullptr, "calloc(%zu) fails %s", size, when);
      check_zero(block, size);
      memset(block, 0xFF, size);
      // Growth in place must not show stale bytes as a new calloc's zeros later.
      block = realloc(block, size + size / 2);
      memset(block, 0xFF, size + size / 2);
      free(block);
    }
  }
}

void check_under_lock(int flags, const char* name) {
  in_child(name, [=] {
    dirty_everything();
    CHECK_MSG(mlockall(flags) == 0,
              "mlockall is refused: run with CAP_IPC_LOCK or `ulimit -l unlimited`");
    everything_is_zero("just locked");
    dirty_everything();
    malloc_trim(0);
    everything_is_zero("after malloc_trim");
    dirty_everything();
    for (int i = 0; i < 30; ++i) {
      test_clock::pass_ms(50);
      free(malloc(100 * kKiB));
    }
    everything_is_zero("after the decay time");
    munlockall();
    everything_is_zero("after munlockall");
    say("%s: calloc gives zeros", name);
  });
}

}  // namespace

int main() {
  begin("mlocked_zeros");
  check_under_lock(MCL_CURRENT | MCL_FUTURE, "MCL_CURRENT | MCL_FUTURE");
  check_under_lock(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT, "MCL_ONFAULT");
  check_under_lock(MCL_CURRENT, "MCL_CURRENT");
  return 0;
}
