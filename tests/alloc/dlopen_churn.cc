// Libraries that allocate in their constructors and destructors, loaded and unloaded while other
// threads allocate; and an attempt to unload the allocator itself.
// Usage: dlopen_churn PLUGIN [ROUNDS]

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

std::atomic<bool> stop{false};

void* churn(void* argument) {
  Random random(reinterpret_cast<uintptr_t>(argument) + 3);
  void* blocks[256] = {};
  while (!stop.load(std::memory_order_relaxed)) {
    void*& block = blocks[random.below(256)];
    free(block);
    const size_t size = random.log_uniform(100 * kKiB);
    block = malloc(size);
    CHECK(block != nullptr);
    if (size > 0) memset(block, 1, size);
  }
  for (auto& block : blocks) free(block);
  return nullptr;
}

void* use_plugin(void* library) {
  auto touch = reinterpret_cast<void (*)()>(dlsym(library, "plugin_touch_thread_local"));
  auto make = reinterpret_cast<void* (*)(size_t)>(dlsym(library, "plugin_malloc"));
  CHECK(touch != nullptr && make != nullptr);
  touch();
  void* kept = make(777);
  memset(kept, 2, 777);
  return kept;
}

// The allocator must outlive every dlclose of it: its memory is in use.
void unload_the_allocator() {
  Dl_info info = {};
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0);
  void* block = malloc(5000);
  fill_pattern(block, 5000, 3);
  for (int i = 0; i < 5; ++i) {
    void* handle = dlopen(info.dli_fname, RTLD_NOW);
    CHECK_MSG(handle != nullptr, "dlopen %s: %s", info.dli_fname, dlerror());
    dlclose(handle);
    dlclose(handle);
  }
  check_pattern(block, 5000, 5000, 3);
  free(realloc(block, 50000));
}

}  // namespace

int main(int argc, char** argv) {
  begin("dlopen_churn");
  CHECK_MSG(argc >= 2, "usage: dlopen_churn PLUGIN [ROUNDS]");
  const size_t rounds = argument(argc, argv, 2, 300);
  pthread_t churners[4];
  for (size_t i = 0; i < 4; ++i) {
    CHECK(pthread_create(&churners[i], nullptr, churn, reinterpret_cast<void*>(i)) == 0);
  }
  for (size_t i = 0; i < rounds; ++i) {
    void* library = dlopen(argv[1], i % 2 == 0 ? RTLD_NOW : RTLD_LAZY);
    CHECK_MSG(library != nullptr, "dlopen: %s", dlerror());
    pthread_t user;
    void* kept = nullptr;
    CHECK(pthread_create(&user, nullptr, use_plugin, library) == 0);
    CHECK(pthread_join(user, &kept) == 0);
    CHECK(dlclose(library) == 0);
    free(kept);
  }
  if (expects_larder()) unload_the_allocator();
  stop = true;
  for (auto churner : churners) CHECK(pthread_join(churner, nullptr) == 0);
  say("%zu rounds of dlopen and dlclose", rounds);
  return 0;
}
