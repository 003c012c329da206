// The library that the dlopen tests load and unload: allocates in constructors and destructors,
// and returns memory of the malloc that its own scope binds to.

#include <stdlib.h>
#include <string.h>

#include <map>
#include <string>
#include <vector>

namespace {

struct Registry {
  std::map<int, std::string> names;
  std::vector<void*> blocks;
  Registry() {
    for (int i = 0; i < 200; ++i) names[i] = std::string(static_cast<size_t>(i), 'p');
    for (size_t i = 0; i < 100; ++i) blocks.push_back(calloc(1, i * 700));
  }
  ~Registry() {
    std::vector<std::string> late(50, std::string(100, 'l'));
    for (void* block : blocks) free(block);
  }
};

Registry registry;
thread_local std::string thread_text;

__attribute__((constructor)) void construct() { free(malloc(1000)); }
__attribute__((destructor)) void destruct() { free(malloc(3000)); }

}  // namespace

extern "C" {

void* plugin_malloc(size_t size) { return malloc(size); }
void* plugin_memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
char* plugin_strdup(const char* text) { return strdup(text); }
void plugin_free(void* block) { free(block); }
void plugin_touch_thread_local() { thread_text.assign(300, 't'); }
const void* plugin_malloc_address() {
  void* (*volatile function)(size_t) = malloc;
  return reinterpret_cast<const void*>(function);
}
}
