// The soft and the hard limit: what they refuse, what they purge, which callbacks they call.
// Usage: memory_limits; with LARDER_EARLY_PURGE=0, so that nothing else purges memory.

#include <pthread.h>

#include <initializer_list>
#include <new>

#include "../clock.h"
#include "larder/larder.h"
#include "support.h"

using namespace alloctest;

namespace {

template <typename Function>
Function* symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  CHECK_MSG(found != nullptr, "%s is not exported", name);
  return reinterpret_cast<Function*>(found);
}

void set_limit(larder_limit which, size_t bytes) {
  CHECK(symbol<decltype(larder_set_limit)>("larder_set_limit")(which, bytes) == 0);
}

size_t get_limit(larder_limit which) {
  return symbol<decltype(larder_get_limit)>("larder_get_limit")(which);
}

using Callback = void (*)(larder_pressure, size_t, void*);

void set_callback(Callback function, void* context) {
  auto* set = symbol<decltype(larder_set_pressure_callback)>("larder_set_pressure_callback");
  CHECK(set(function, context) == 0);
}

// Allocates and writes a list of blocks until malloc fails or there are `most` bytes.
struct Hoard {
  struct Block {
    Block* next;
    size_t size;
  };
  Block* first = nullptr;
  size_t bytes = 0;

  bool add(size_t size) {
    auto* block = static_cast<Block*>(opaque(malloc(size)));
    if (block == nullptr) return false;
    memset(block, 0x5a, size);
    *block = {first, size};
    first = block;
    bytes += size;
    return true;
  }
  size_t fill(size_t size, size_t most) {
    while (bytes + size <= most && add(size)) {
    }
    return bytes;
  }
  void drop() {
    Block* block = first;
    first = block->next;
    bytes -= block->size;
    free(block);
  }
  // Every other block.
  void thin() {
    for (Block* at = first; at != nullptr && at->next != nullptr; at = at->next) {
      Block* gone = at->next;
      at->next = gone->next;
      bytes -= gone->size;
      free(gone);
    }
  }
  void clear() {
    while (first != nullptr) drop();
  }
};

constexpr size_t kHard = 192 * kMiB;
constexpr size_t kSizes[] = {48, 1000, 20 * kKiB, 100 * kKiB, 900 * kKiB, 5 * kMiB};

// Each size gets nearly all that the limit allows, after another size had it.
void hard_limit_is_for_all_sizes() {
  set_limit(LARDER_HARD_LIMIT, kHard);
  CHECK(get_limit(LARDER_HARD_LIMIT) == kHard);
  const size_t before = rss_bytes();
  for (size_t size : kSizes) {
    Hoard hoard;
    errno = 0;
    hoard.fill(size, SIZE_MAX / 2);
    CHECK_MSG(errno == ENOMEM, "%zu bytes: errno", size);
    CHECK_MSG(hoard.bytes > kHard - kHard / 6, "only %.1f MiB of %zu bytes each", mib(hoard.bytes),
              size);
    CHECK_MSG(hoard.bytes <= kHard && rss_bytes() <= before + kHard, "%.1f MiB of %zu bytes",
              mib(hoard.bytes), size);
    void* large = malloc(40 * kMiB);
    CHECK_MSG(large == nullptr && errno == ENOMEM, "40 MiB beyond the limit");
    // Holes of half of it: another size takes them.
    hoard.thin();
    Hoard other;
    other.fill(size == 5 * kMiB ? 48 : size > 20 * kKiB ? 5 * kMiB : size * 32, SIZE_MAX / 2);
    if (size >= 100 * kKiB)
      CHECK_MSG(other.bytes > kHard / 4, "%.1f MiB in the holes of %zu", mib(other.bytes), size);
    CHECK(hoard.bytes + other.bytes <= kHard);
    hoard.clear();
    other.clear();
  }
  set_limit(LARDER_HARD_LIMIT, 0);
}

// Cached mappings that are joined may still be several to the kernel, if each was touched while it
// had no neighbour. There is no room for a copy.
void grow_what_mremap_refuses() {
  auto* release = symbol<decltype(larder_release_free_memory)>("larder_release_free_memory");
  release();
  const size_t part = 24 * kMiB, joined = 3 * part - kMiB;
  char* parts[4];  // the first fills a hole, the others are neighbours
  for (char*& p : parts) p = static_cast<char*>(malloc(part));
  free(parts[2]);
  release();
  for (int i : {1, 3}) memset(parts[i], 1, part);
  parts[2] = static_cast<char*>(malloc(part));
  memset(parts[2], 1, part);
  for (int i : {1, 2, 3}) free(parts[i]);
  auto* block = static_cast<char*>(malloc(joined));
  CHECK(block != nullptr);
  for (size_t i = 0; i < joined; i += 4096) block[i] = char(i / 4096);
  free(parts[0]);
  block = static_cast<char*>(realloc(block, 130 * kMiB));
  CHECK_MSG(block != nullptr, "no growth of joined mappings");
  for (size_t i = 0; i < joined; i += 4096) CHECK(block[i] == char(i / 4096));
  CHECK(rss_bytes() < kHard);
  free(block);
  release();
}

void realloc_at_the_limit() {
  set_limit(LARDER_HARD_LIMIT, kHard);
  auto* block = static_cast<char*>(malloc(kMiB));
  CHECK(block != nullptr);
  size_t size = kMiB;
  for (;; size += kMiB) {
    auto* grown = static_cast<char*>(realloc(block, size));
    if (grown == nullptr) break;
    block = grown;
    memset(block + size - kMiB, 1, kMiB);
  }
  CHECK(errno == ENOMEM);
  CHECK_MSG(size > kHard - kHard / 6 && size <= kHard, "realloc up to %.0f MiB", mib(size));
  CHECK(block[0] == 1 && block[size - kMiB - 1] == 1);
  auto* shrunk = static_cast<char*>(realloc(block, 100 * kKiB));
  CHECK(shrunk != nullptr);
  free(shrunk);
  // Free mappings lie behind one that grows: they are unmapped.
  Hoard hoard;
  hoard.fill(2 * kMiB, 60 * kMiB);
  block = static_cast<char*>(malloc(100 * kMiB));
  CHECK(block != nullptr);
  hoard.clear();
  block = static_cast<char*>(realloc(block, 160 * kMiB));
  CHECK_MSG(block != nullptr, "no growth in place of what was freed");
  free(block);
  grow_what_mremap_refuses();
  set_limit(LARDER_HARD_LIMIT, 0);
}

void new_throws() {
  set_limit(LARDER_HARD_LIMIT, kHard);
  bool thrown = false;
  try {
    free(opaque(operator new(kHard)));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown && operator new(kHard, std::nothrow) == nullptr);
  set_limit(LARDER_HARD_LIMIT, 0);
}

std::atomic<size_t> in_all{0};

void* hoard_in_thread(void* argument) {
  const auto number = reinterpret_cast<uintptr_t>(argument);
  for (int round = 0; round < 3; ++round) {
    Hoard hoard;
    Random random(number * 100 + static_cast<size_t>(round));
    for (int failures = 0; failures < 3;) {
      const size_t size = 16 + random.log_uniform(12 * kMiB);
      if (!hoard.add(size)) {
        ++failures;
        continue;
      }
      const size_t all = in_all.fetch_add(size) + size;
      CHECK_MSG(all <= kHard, "%.1f MiB are in use", mib(all));
      if (random.below(4) == 0) {
        in_all.fetch_sub(hoard.first->size);
        hoard.drop();
      }
    }
    // Another thread may allocate freed memory before it is counted here.
    in_all.fetch_sub(hoard.bytes);
    hoard.clear();
  }
  return nullptr;
}

void hard_limit_with_threads() {
  set_limit(LARDER_HARD_LIMIT, kHard);
  pthread_t threads[6];
  for (uintptr_t i = 0; i < 6; ++i)
    CHECK(pthread_create(&threads[i], nullptr, hoard_in_thread, reinterpret_cast<void*>(i)) == 0);
  for (pthread_t thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  Hoard hoard;
  hoard.fill(kMiB, SIZE_MAX / 2);
  CHECK_MSG(hoard.bytes > kHard * 3 / 4, "%.1f MiB after the threads", mib(hoard.bytes));
  in_child("fork at the limit", [&] {
    CHECK(malloc(20 * kMiB) == nullptr);
    hoard.clear();
    Hoard other;
    CHECK(other.fill(300, SIZE_MAX / 2) > kHard / 2);
  });
  hoard.clear();
  set_limit(LARDER_HARD_LIMIT, 0);
}

void below_what_is_in_use() {
  Hoard hoard;
  hoard.fill(kMiB / 2, 100 * kMiB);
  for (larder_limit limit : {LARDER_HARD_LIMIT, LARDER_SOFT_LIMIT}) {
    set_limit(limit, kMiB);
    void* more = malloc(30 * kMiB);
    CHECK((more == nullptr) == (limit == LARDER_HARD_LIMIT));
    free(more);
    hoard.drop();
    void* little = malloc(100);
    CHECK_MSG(little != nullptr, "what is free serves");
    free(little);
    set_limit(limit, 0);
    more = malloc(30 * kMiB);
    CHECK(more != nullptr);
    free(more);
  }
  auto* set = symbol<decltype(larder_set_limit)>("larder_set_limit");
  CHECK(set(static_cast<larder_limit>(7), 1) == -1 && errno == EINVAL);
  set_limit(LARDER_SOFT_LIMIT, SIZE_MAX);
  CHECK(malloc(1) != nullptr);
  set_limit(LARDER_SOFT_LIMIT, 0);
  hoard.clear();
}

// What remains of 240 MiB after 200 of them are freed.
size_t rss_after_frees(size_t size) {
  Hoard stays, goes;
  const size_t before = rss_bytes();
  while (stays.bytes + goes.bytes < 240 * kMiB) {
    goes.fill(size, goes.bytes + 5 * size);
    CHECK(stays.add(size));
  }
  goes.clear();
  const size_t left = rss_bytes() - before;
  stays.clear();
  return left;
}

void soft_limit_gives_back() {
  for (size_t size : {48 * kKiB, 700 * kKiB, 3 * kMiB}) {
    set_limit(LARDER_SOFT_LIMIT, 64 * kMiB);
    const size_t with = rss_after_frees(size);
    set_limit(LARDER_SOFT_LIMIT, 0);
    symbol<decltype(larder_release_free_memory)>("larder_release_free_memory")();
    const size_t without = rss_after_frees(size);
    symbol<decltype(larder_release_free_memory)>("larder_release_free_memory")();
    CHECK_MSG(with < 70 * kMiB, "%.1f MiB stay of blocks of %zu", mib(with), size);
    CHECK_MSG(without > 120 * kMiB, "only %.1f MiB stay without a limit", mib(without));
  }
}

struct Calls {
  std::atomic<int> soft{0}, hard{0}, inside{0};
  std::atomic<size_t> bytes{0};
  Hoard reserve;
};

// Allocates beyond the limit, and frees its argument in the callback.
void count_call(larder_pressure pressure, size_t bytes, void* context) {
  auto* calls = static_cast<Calls*>(context);
  CHECK_MSG(calls->inside.fetch_add(1) == 0, "called while it runs");
  (pressure == LARDER_PRESSURE_SOFT ? calls->soft : calls->hard)++;
  calls->bytes = bytes;
  errno = 0;
  void* p = malloc(200);
  free(malloc(3 * kMiB));
  if (pressure == LARDER_PRESSURE_HARD)
    CHECK_MSG(malloc(kHard) == nullptr && errno == ENOMEM, "not called for its own failure");
  if (calls->reserve.first != nullptr) calls->reserve.clear();
  free(p);
  CHECK(calls->inside.fetch_sub(1) == 1);
  errno = E2BIG;
}

void program_is_notified() {
  static Calls calls;
  set_callback(count_call, &calls);
  set_limit(LARDER_SOFT_LIMIT, 64 * kMiB);
  Hoard hoard;
  hoard.fill(300 * kKiB, 40 * kMiB);
  CHECK_MSG(calls.soft == 0, "called below the limit");
  for (int crossings = 1; crossings <= 3; ++crossings) {
    errno = 0;
    hoard.fill(300 * kKiB, 100 * kMiB);
    CHECK_MSG(errno == 0, "malloc sets errno %d", errno);
    CHECK_MSG(calls.soft == crossings, "called %d times of %d", calls.soft.load(), crossings);
    CHECK_MSG(calls.bytes > 0 && calls.bytes < 8 * kMiB, "%zu bytes", calls.bytes.load());
    while (hoard.bytes > 40 * kMiB) hoard.drop();
    test_clock::pass_ms(20);
    free(malloc(kMiB));
  }
  set_limit(LARDER_SOFT_LIMIT, 0);
  hoard.clear();
  CHECK(calls.hard == 0);

  calls.reserve.fill(50 * kKiB, 30 * kMiB);
  set_limit(LARDER_HARD_LIMIT, kHard);
  while (calls.hard == 0) CHECK_MSG(hoard.add(500 * kKiB), "failed before the callback was called");
  CHECK_MSG(calls.reserve.bytes == 0 && calls.bytes > 0, "%zu", calls.bytes.load());
  hoard.fill(500 * kKiB, hoard.bytes + 20 * kMiB);
  CHECK_MSG(calls.hard == 1, "what it freed was not used: called %d times", calls.hard.load());
  hoard.fill(500 * kKiB, SIZE_MAX / 2);
  CHECK_MSG(calls.hard == 2 && errno == ENOMEM, "called %d times", calls.hard.load());
  set_callback(nullptr, nullptr);
  CHECK(malloc(kHard) == nullptr && calls.hard == 2);
  set_limit(LARDER_HARD_LIMIT, 0);
  hoard.clear();
}

// Wherever in a page the limit is met: free memory goes back before the program is asked for more.
void realloc_releases_free_memory() {
  static std::atomic<int> calls{0};
  set_callback([](larder_pressure, size_t, void*) { ++calls; }, nullptr);
  for (size_t step = 0; step < 64; ++step) {
    symbol<decltype(larder_release_free_memory)>("larder_release_free_memory")();
    Hoard pad, freed;
    CHECK(pad.add(2 * kMiB + step * 16 * kKiB));
    freed.fill(300 * kKiB, 24 * kMiB);
    set_limit(LARDER_HARD_LIMIT, 64 * kMiB);
    freed.clear();
    calls = 0;
    char* block = nullptr;
    for (size_t size = 24 * kMiB; size <= 48 * kMiB; size += kMiB) {
      auto* grown = static_cast<char*>(realloc(block, size));
      CHECK_MSG(grown != nullptr && calls == 0, "step %zu: called %d times for %.0f MiB", step,
                calls.load(), mib(size));
      block = grown;
    }
    free(block);
    pad.clear();
    set_limit(LARDER_HARD_LIMIT, 0);
  }
  set_callback(nullptr, nullptr);
}

// There is no room for a copy, even then.
void realloc_uses_what_the_callback_frees() {
  static Calls calls;
  set_callback(count_call, &calls);
  auto* block = static_cast<char*>(malloc(100 * kMiB));
  CHECK(block != nullptr);
  memset(block, 7, 100 * kMiB);
  calls.reserve.fill(50 * kKiB, 60 * kMiB);
  set_limit(LARDER_HARD_LIMIT, kHard);
  errno = 0;
  auto* grown = static_cast<char*>(realloc(block, 150 * kMiB));
  CHECK_MSG(grown != nullptr && errno == 0, "called %d times", calls.hard.load());
  CHECK(calls.hard > 0 && grown[0] == 7 && grown[100 * kMiB - 1] == 7);
  set_callback(nullptr, nullptr);
  free(grown);
  set_limit(LARDER_HARD_LIMIT, 0);
}

// By many threads at once, and by a child of one that is in it.
void program_is_notified_by_any_thread() {
  static Calls calls;
  set_callback(count_call, &calls);
  set_limit(LARDER_HARD_LIMIT, kHard);
  pthread_t threads[6];
  for (pthread_t& thread : threads)
    CHECK(pthread_create(
              &thread, nullptr,
              [](void*) -> void* {
                Hoard hoard;
                for (int i = 0; i < 8; ++i) {
                  hoard.fill(200 * kKiB, SIZE_MAX / 2);
                  hoard.clear();
                }
                return nullptr;
              },
              nullptr) == 0);
  for (pthread_t thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  CHECK(calls.hard > 0 && calls.inside == 0);
  auto fork_inside = [](larder_pressure, size_t, void*) {
    in_child("fork in the callback",
             [] { CHECK(malloc(100) != nullptr && malloc(kHard) == nullptr); });
  };
  set_callback(fork_inside, nullptr);
  CHECK(malloc(kHard) == nullptr);
  set_callback(nullptr, nullptr);
  set_limit(LARDER_HARD_LIMIT, 0);
}

}  // namespace

int main() {
  begin("memory_limits");
  hard_limit_is_for_all_sizes();
  realloc_at_the_limit();
  new_throws();
  below_what_is_in_use();
  soft_limit_gives_back();
  program_is_notified();
  realloc_releases_free_memory();
  realloc_uses_what_the_callback_frees();
  hard_limit_with_threads();
  program_is_notified_by_any_thread();
  say("ok");
  return 0;
}
