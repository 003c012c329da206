// Little address space: RLIMIT_AS of 64 MiB from the start, and a limit that tightens at run time.
//
// The process must start, fail only what does not fit, keep live data, and recover after frees.

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kLimit = 64 * kMiB;
constexpr size_t kChunk = 64 * kKiB;
constexpr size_t kSmallChunk = 8 * kKiB;
constexpr size_t kMostChunks = kLimit / kSmallChunk;

void* chunks[kMostChunks];

size_t fill_up(size_t chunk_bytes) {
  size_t count = 0;
  for (; count < kMostChunks; ++count) {
    errno = 0;
    chunks[count] = malloc(chunk_bytes);
    if (chunks[count] == nullptr) break;
    fill_pattern(chunks[count], chunk_bytes, count);
  }
  CHECK_MSG(count < kMostChunks, "more was given than the limit has");
  CHECK_MSG(errno == ENOMEM, "exhaustion must set ENOMEM");
  return count;
}

void release_all(size_t count, size_t chunk_bytes) {
  for (size_t i = 0; i < count; ++i) {
    if (chunks[i] == nullptr) continue;
    check_pattern(chunks[i], chunk_bytes, chunk_bytes, i);
    free(chunks[i]);
  }
}

void small_requests_still_fit(const char* when) {
  for (size_t size = 1; size < 32 * kKiB; size += size / 2 + 1) {
    void* block = malloc(size);
    CHECK_MSG(block != nullptr, "malloc(%zu) fails %s", size, when);
    memset(block, 1, size);
    free(block);
  }
}

void* run_thread(void*) {
  void* block = malloc(100 * kKiB);
  CHECK(block != nullptr);
  memset(block, 1, 100 * kKiB);
  free(block);
  return nullptr;
}

// Runs with the limit in force since exec.
void under_the_limit() {
  const size_t at_start = statm_bytes(0);
  const size_t room = kLimit - at_start;
  say("address space at start %.1f MiB of %zu", mib(at_start), kLimit / kMiB);
  CHECK_MSG(at_start < kLimit / 2, "the process alone takes more than half of the limit");
  small_requests_still_fit("at the start");
  errno = 0;
  CHECK(malloc(opaque(kLimit)) == nullptr && errno == ENOMEM);
  errno = 0;
  CHECK(calloc(1, opaque(10 * kGiB)) == nullptr && errno == ENOMEM);
  small_requests_still_fit("after a request that does not fit");

  size_t count = fill_up(kChunk);
  say("%zu chunks of 64 KiB = %.1f MiB of %.1f MiB that were left", count, mib(count * kChunk),
      mib(room));
  CHECK_MSG(count * kChunk >= room / 4 * 3, "only %.1f of %.1f MiB could be used",
            mib(count * kChunk), mib(room));
  const size_t first = count;
  for (int i = 0; i < 100; ++i) {
    free(chunks[--count]);
    chunks[count] = malloc(kChunk);
    CHECK_MSG(chunks[count] != nullptr, "a freed chunk cannot be had again");
    fill_pattern(chunks[count], kChunk, count);
    ++count;
  }
  CHECK(realloc(chunks[0], opaque(kLimit)) == nullptr);
  // A shrinking realloc must not fail, even without memory.
  for (size_t i = 1; i < 20; ++i) {
    const size_t smaller = 100 * i * i;
    void* shrunk = realloc(chunks[i], smaller);
    CHECK_MSG(shrunk != nullptr, "realloc down to %zu bytes fails when memory is short", smaller);
    check_pattern(shrunk, kChunk, smaller, i);
    free(shrunk);
    chunks[i] = nullptr;
  }
  release_all(count, kChunk);

  count = fill_up(kSmallChunk);
  CHECK_MSG(count * kSmallChunk >= room / 2, "only %.1f of %.1f MiB in chunks of 8 KiB",
            mib(count * kSmallChunk), mib(room));
  release_all(count, kSmallChunk);
  small_requests_still_fit("after all was freed");
  count = fill_up(kChunk);
  CHECK_MSG(count * 10 >= first * 9, "the second time %zu chunks fit, the first time %zu", count,
            first);
  release_all(count, kChunk);
  void* large = malloc(room / 2);
  CHECK_MSG(large != nullptr, "%.1f MiB do not fit once all is free", mib(room / 2));
  memset(large, 1, room / 2);
  free(large);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 * kKiB);
  for (int i = 0; i < 50; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, run_thread, nullptr) == 0);
    CHECK(pthread_join(thread, nullptr) == 0);
  }
}

void tightened_at_run_time() {
  void* live[200];
  for (size_t i = 0; i < 200; ++i) {
    live[i] = malloc(i * 3000);
    fill_pattern(live[i], i * 3000, i);
  }
  rlimit before;
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit tight = {statm_bytes(0), before.rlim_max};
  CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
  errno = 0;
  CHECK(malloc(opaque(64 * kMiB)) == nullptr && errno == ENOMEM);
  size_t refused = 0;
  static void* more[20000];
  for (auto& block : more) {
    block = malloc(20000);
    if (block == nullptr) {
      CHECK(errno == ENOMEM);
      ++refused;
    } else {
      memset(block, 0xEE, 20000);
    }
  }
  CHECK(refused > 0);
  for (size_t i = 0; i < 200; ++i) {
    void* moved = realloc(live[i], i * 3000 + 40 * kMiB);
    CHECK(moved == nullptr && errno == ENOMEM);
    check_pattern(live[i], i * 3000, i * 3000, i);
  }
  for (auto& block : more) free(block);
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  void* block = malloc(100 * kMiB);
  CHECK_MSG(block != nullptr, "the limit is gone, malloc still fails");
  free(block);
  for (size_t i = 0; i < 200; ++i) {
    check_pattern(live[i], i * 3000, i * 3000, i);
    live[i] = realloc(live[i], i * 5000 + 1);
    CHECK(live[i] != nullptr);
    free(live[i]);
  }
  say("tightened at run time: %zu requests refused, all recovered", refused);
}

}  // namespace

int main(int argc, char** argv) {
  begin("limits");
  if (argc == 2 && strcmp(argv[1], "under-limit") == 0) {
    under_the_limit();
    return 0;
  }
  in_child("tightened", tightened_at_run_time);
  const rlimit limit = {kLimit, kLimit};
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  execl("/proc/self/exe", argv[0], "under-limit", nullptr);
  CHECK_MSG(false, "exec failed");
}
