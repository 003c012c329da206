// Huge blocks that are moved, freed and allocated at the same addresses on many threads at once.
// Usage: huge_race [SECONDS [THREADS]]
//
// The kernel gives a hole to the next thread at once, so the allocator's data about an address must
// be removed before the mapping is. Blocks are accessed in two pages only, so that the threads
// collide as often as possible.

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

std::atomic<bool> stop{false};
std::atomic<uint64_t> operations{0};

struct Owned {
  unsigned char* block = nullptr;
  size_t size = 0;
  uint64_t stamp = 0;
};

void stamp(Owned& owned, uint64_t value) {
  owned.stamp = value;
  memcpy(owned.block, &value, sizeof value);
  memcpy(owned.block + owned.size - sizeof value, &value, sizeof value);
}

void check_first(const Owned& owned) {
  uint64_t first;
  memcpy(&first, owned.block, sizeof first);
  CHECK_MSG(first == owned.stamp, "huge block %p of %zu bytes lost its content",
            static_cast<void*>(owned.block), owned.size);
}

void check_both(const Owned& owned) {
  check_first(owned);
  uint64_t last;
  memcpy(&last, owned.block + owned.size - sizeof last, sizeof last);
  CHECK_MSG(last == owned.stamp, "the end of a huge block was lost");
  CHECK(malloc_usable_size(owned.block) >= owned.size);
}

size_t pick_size(Random& random) { return 4 * kMiB + random.below(40 * kMiB); }

void* run_thread(void* argument) {
  Random random(reinterpret_cast<uintptr_t>(argument) + 51);
  Owned table[6];
  uint64_t done = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    Owned& owned = table[random.below(6)];
    ++done;
    if (owned.block == nullptr) {
      owned.size = pick_size(random);
      owned.block = static_cast<unsigned char*>(random.below(4) == 0 ? calloc(1, owned.size)
                                                                     : malloc(owned.size));
      CHECK(owned.block != nullptr);
    } else if (random.below(2) == 0) {
      check_both(owned);
      free(owned.block);
      owned = {};
      continue;
    } else {
      check_both(owned);
      // Growth beyond any reserve, so that the mapping has to move.
      const size_t larger = random.below(3) == 0 ? pick_size(random) : owned.size * 2;
      owned.size = larger > 300 * kMiB ? pick_size(random) : larger;
      owned.block = static_cast<unsigned char*>(realloc(owned.block, owned.size));
      CHECK(owned.block != nullptr);
      check_first(owned);
    }
    stamp(owned, random.next());
  }
  for (auto& owned : table) free(owned.block);
  operations.fetch_add(done);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  begin("huge_race");
  const size_t seconds = argument(argc, argv, 1, 20);
  const size_t threads = argument(argc, argv, 2, 8);
  pthread_t handles[64];
  CHECK(threads <= 64);
  const size_t before = mapping_count();
  for (size_t i = 0; i < threads; ++i) {
    CHECK(pthread_create(&handles[i], nullptr, run_thread, reinterpret_cast<void*>(i)) == 0);
  }
  sleep_ms(static_cast<long>(seconds) * 1000);
  stop = true;
  for (size_t i = 0; i < threads; ++i) CHECK(pthread_join(handles[i], nullptr) == 0);
  malloc_trim(0);
  say("%zu threads, %zu s: %lu operations; %zu mappings before, %zu after; %.1f MiB resident",
      threads, seconds, static_cast<unsigned long>(operations.load()), before, mapping_count(),
      mib(rss_bytes()));
  CHECK(operations.load() > 100);
  return 0;
}
