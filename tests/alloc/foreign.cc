// Blocks of another malloc in the same process, passed to this one: libc's own through
// RTLD_DEEPBIND, through its __libc_ entry points, and through a second libc from dlmopen.
// Usage: foreign PLUGIN
//
// free must pass them on to their owner, realloc must preserve their contents. The other direction,
// a block of ours passed to libc's own free, only libc could handle.

#include <link.h>

#include <initializer_list>

#include "support.h"

using namespace alloctest;

namespace {

using Malloc = void* (*)(size_t);
using Memalign = void* (*)(size_t, size_t);
using Strdup = char* (*)(const char*);
using Address = const void* (*)();

void* symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  CHECK_MSG(address != nullptr, "no %s", name);
  return address;
}

const char* owner_of(const void* address) {
  Dl_info info = {};
  CHECK(dladdr(address, &info) != 0);
  return info.dli_fname;
}

void hand_over(Malloc make, size_t largest) {
  for (size_t size = 0; size < largest; size += size / 4 + 1) {
    void* block = make(size);
    CHECK(block != nullptr);
    fill_pattern(block, size, size);
    errno = 4242;
    free(block);
    CHECK(errno == 4242);
    block = make(size);
    fill_pattern(block, size, size);
    // libc has no function for it: 0 is correct, a wrong figure is not.
    const size_t usable = malloc_usable_size(block);
    CHECK(usable == 0 || usable >= size);
    block = realloc(block, size * 2 + 10);
    CHECK(block != nullptr);
    check_pattern(block, size, size, size);
    block = realloc(block, size / 2 + 1);
    check_pattern(block, size, size / 2 + 1 < size ? size / 2 + 1 : size, size);
    free(block);
    block = make(size + 1);
    CHECK(realloc(block, 0) == nullptr);
    // Blocks of both kinds in turn, so that neither's free list gets the other's.
    void* own = malloc(size);
    block = make(size);
    free(own);
    free(block);
  }
}

void deep_bound_plugin(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK_MSG(library != nullptr, "dlopen: %s", dlerror());
  auto address = reinterpret_cast<Address>(symbol(library, "plugin_malloc_address"));
  const char* owner = owner_of(address());
  CHECK_MSG(strstr(owner, "libc.so") != nullptr, "deep-bound malloc belongs to %s", owner);
  hand_over(reinterpret_cast<Malloc>(symbol(library, "plugin_malloc")), 3 * kMiB);
  auto aligned = reinterpret_cast<Memalign>(symbol(library, "plugin_memalign"));
  for (size_t alignment = 16; alignment <= 64 * kKiB; alignment *= 2) {
    void* block = aligned(alignment, 1000);
    CHECK(is_aligned(block, alignment));
    free(block);
  }
  auto duplicate = reinterpret_cast<Strdup>(symbol(library, "plugin_strdup"));
  free(duplicate("a foreign string"));
  dlclose(library);
  say("RTLD_DEEPBIND: passed on to %s", owner);
}

void libc_entry_points() {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  CHECK(libc != nullptr);
  hand_over(reinterpret_cast<Malloc>(symbol(libc, "__libc_malloc")), 3 * kMiB);
  auto aligned = reinterpret_cast<Memalign>(symbol(libc, "__libc_memalign"));
  for (size_t alignment = 16; alignment <= 64 * kKiB; alignment *= 2) {
    void* block = aligned(alignment, 5000);
    CHECK(is_aligned(block, alignment));
    memset(block, 1, 5000);
    free(block);
  }
  // The first definitions that a program finds: free must match, whichever allocator's they are.
  for (const char* name : {"__libc_malloc", "__libc_valloc", "__libc_pvalloc"}) {
    auto make = reinterpret_cast<Malloc>(symbol(RTLD_DEFAULT, name));
    void* block = make(3000);
    memset(block, 1, 3000);
    free(block);
  }
  auto calloc_alias = reinterpret_cast<Memalign>(symbol(RTLD_DEFAULT, "__libc_calloc"));
  void* block = calloc_alias(10, 100);
  check_zero(block, 1000);
  using Realloc = void* (*)(void*, size_t);
  block = reinterpret_cast<Realloc>(symbol(RTLD_DEFAULT, "__libc_realloc"))(block, 9000);
  check_zero(block, 1000);
  reinterpret_cast<void (*)(void*)>(symbol(RTLD_DEFAULT, "__libc_free"))(block);
  say("__libc_malloc belongs to %s", owner_of(symbol(RTLD_DEFAULT, "__libc_malloc")));
}

// A second libc in a namespace of its own does not see the preload. Its own free frees its blocks;
// loading, using and closing it must not damage either heap.
void second_namespace(const char* path) {
  void* mine[64];
  for (size_t i = 0; i < 64; ++i) {
    mine[i] = malloc(i * 50);
    fill_pattern(mine[i], i * 50, i);
  }
  for (int round = 0; round < 5; ++round) {
    void* library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(library != nullptr, "dlmopen: %s", dlerror());
    auto make = reinterpret_cast<Malloc>(symbol(library, "plugin_malloc"));
    auto release = reinterpret_cast<void (*)(void*)>(symbol(library, "plugin_free"));
    for (size_t size = 1; size < kMiB; size *= 3) {
      void* block = make(size);
      memset(block, 1, size);
      release(block);
    }
    dlclose(library);
  }
  for (size_t i = 0; i < 64; ++i) {
    check_pattern(mine[i], i * 50, i * 50, i);
    free(mine[i]);
  }
  say("dlmopen: both heaps intact");
}

}  // namespace

int main(int argc, char** argv) {
  begin("foreign");
  CHECK_MSG(argc >= 2, "usage: foreign PLUGIN");
  deep_bound_plugin(argv[1]);
  libc_entry_points();
  second_namespace(argv[1]);
  return 0;
}
