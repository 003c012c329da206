// liblarder_prefixed.a beside libc's malloc in one process: two independent heaps, from several
// threads, with the prefixed names only. Not preloaded.

#include <pthread.h>

#include "larder/larder.h"
#include "support.h"

using namespace alloctest;

// The prefixed family, like a program without the header would declare it.
extern "C" {
void* larder_malloc(size_t size);
void* larder_calloc(size_t count, size_t size);
void* larder_realloc(void* block, size_t size);
void larder_free(void* block);
void* larder_aligned_alloc(size_t alignment, size_t size);
int larder_posix_memalign(void** block, size_t alignment, size_t size);
size_t larder_malloc_usable_size(void* block);
}

namespace {

struct Pair {
  void* ours;
  void* theirs;
  size_t size;
};

void* run_thread(void* argument) {
  Random random(reinterpret_cast<uintptr_t>(argument) + 1);
  static constexpr size_t kPairs = 500;
  auto* pairs = static_cast<Pair*>(calloc(kPairs, sizeof(Pair)));
  for (int i = 0; i < 40000; ++i) {
    Pair& pair = pairs[random.below(kPairs)];
    if (pair.ours != nullptr) {
      check_pattern(pair.ours, pair.size, pair.size, pair.size + 1);
      check_pattern(pair.theirs, pair.size, pair.size, pair.size + 2);
      CHECK(larder_malloc_usable_size(pair.ours) >= pair.size);
      larder_free(pair.ours);
      free(pair.theirs);
    }
    pair.size = random.log_uniform(50 * kKiB);
    switch (random.below(4)) {
      case 0:
        pair.ours = larder_calloc(1, pair.size);
        check_zero(pair.ours, pair.size);
        break;
      case 1:
        pair.ours = larder_realloc(larder_malloc(pair.size / 2), pair.size + 1);
        break;
      case 2:
        CHECK(larder_posix_memalign(&pair.ours, 64, pair.size) == 0 && is_aligned(pair.ours, 64));
        break;
      default:
        pair.ours = larder_malloc(pair.size);
    }
    pair.theirs = malloc(pair.size);
    CHECK(pair.ours != nullptr && pair.theirs != nullptr);
    fill_pattern(pair.ours, pair.size, pair.size + 1);
    fill_pattern(pair.theirs, pair.size, pair.size + 2);
  }
  for (size_t i = 0; i < kPairs; ++i) {
    larder_free(pairs[i].ours);
    free(pairs[i].theirs);
  }
  free(pairs);
  return nullptr;
}

bool belongs_to_the_program(const void* address) {
  Dl_info mine = {}, its = {};
  CHECK(dladdr(reinterpret_cast<const void*>(&run_thread), &mine) != 0);
  CHECK(dladdr(address, &its) != 0);
  return mine.dli_fbase == its.dli_fbase;
}

}  // namespace

int main() {
  test_name = "prefixed";
  watchdog();
  CHECK_MSG(!is_mapped("liblarder.so"), "this test runs without the preload");
  CHECK_MSG(!belongs_to_the_program(dlsym(RTLD_DEFAULT, "malloc")), "malloc is not libc's");
  void* (*volatile prefixed)(size_t) = larder_malloc;
  CHECK(belongs_to_the_program(reinterpret_cast<const void*>(prefixed)));
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) {
    CHECK(pthread_create(&threads[i], nullptr, run_thread, reinterpret_cast<void*>(i)) == 0);
  }
  for (auto thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  in_child("fork beside another malloc", [] { run_thread(nullptr); });
  void* large = larder_realloc(larder_aligned_alloc(4096, 10), 50 * kMiB);
  CHECK(large != nullptr);
  memset(large, 1, 50 * kMiB);
  larder_free(large);
  larder_free(nullptr);
  CHECK(larder_malloc_usable_size(nullptr) == 0);
  errno = 0;
  CHECK(larder_malloc(opaque(SIZE_MAX)) == nullptr && errno == ENOMEM);
  say("both heaps intact");
  return 0;
}
