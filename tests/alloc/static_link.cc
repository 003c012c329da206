// A program linked with liblarder.a, dynamically, as a static PIE, or wholly static: malloc is
// in the program itself, and libc's own users (stdio, strdup) reach it. Not preloaded.

#include <pthread.h>

#include <string>
#include <vector>

#include "larder/larder.h"
#include "support.h"

using namespace alloctest;

extern "C" char __executable_start;
extern "C" char etext;

namespace {

void require_own_malloc() {
  void* (*volatile function)(size_t) = malloc;
  const auto address = reinterpret_cast<uintptr_t>(function);
  CHECK_MSG(address >= reinterpret_cast<uintptr_t>(&__executable_start) &&
                address < reinterpret_cast<uintptr_t>(&etext),
            "malloc at %#zx is not in the program", address);
}

void* run_thread(void*) {
  std::vector<std::string> words;
  for (size_t i = 0; i < 20000; ++i) words.push_back(std::string(i % 300, 'w'));
  void* big = realloc(malloc(10), 30 * kMiB);
  memset(big, 1, 30 * kMiB);
  free(big);
  return nullptr;
}

}  // namespace

int main() {
  test_name = "static_link";
  watchdog();
  require_own_malloc();
  struct larder_stats before, after;
  CHECK(larder_get_stats(&before, sizeof before) == 0);
  void* kept = malloc(20 * kMiB);
  memset(kept, 1, 20 * kMiB);
  CHECK(larder_get_stats(&after, sizeof after) == 0);
  CHECK_MSG(memcmp(&before, &after, sizeof before) != 0,
            "20 MiB more are live and no statistic of the allocator has changed");
  free(kept);
  pthread_t threads[4];
  for (auto& thread : threads) CHECK(pthread_create(&thread, nullptr, run_thread, nullptr) == 0);
  for (auto thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  char* text = strdup("text");
  text = static_cast<char*>(realloc(text, 10000));
  CHECK(strcmp(text, "text") == 0);
  free(text);
  in_child("fork", [] { run_thread(nullptr); });
  bool caught = false;
  try {
    static_cast<void>(opaque(operator new(opaque(size_t{1} << 61))));
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  CHECK(caught);
  CHECK(opaque(operator new(opaque(size_t{1} << 61), std::nothrow)) == nullptr);
  say("malloc is the program's own");
  return 0;
}
