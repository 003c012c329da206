// A library that is opened with RTLD_DEEPBIND allocates and frees with this malloc all the same:
// objects may cross both ways. Usage: deep_bound PLUGIN
//
// PLUGIN is a file's name without a folder: libc must look for it along this program's RUNPATH.

#include "support.h"

using namespace alloctest;

namespace {

template <typename Function>
Function symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  CHECK_MSG(address != nullptr, "no %s", name);
  return reinterpret_cast<Function>(address);
}

}  // namespace

int main(int argc, char** argv) {
  begin("deep_bound");
  CHECK_MSG(argc == 2, "usage: deep_bound PLUGIN");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK_MSG(library != nullptr, "dlopen: %s", dlerror());
  auto address = symbol<const void* (*)()>(library, "plugin_malloc_address");
  Dl_info plugin = {};
  Dl_info own = {};
  CHECK(dladdr(address(), &plugin) != 0);
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &own) != 0);
  CHECK_MSG(plugin.dli_fbase == own.dli_fbase, "the plugin's malloc is that of %s",
            plugin.dli_fname);
  auto make = symbol<void* (*)(size_t)>(library, "plugin_malloc");
  auto release = symbol<void (*)(void*)>(library, "plugin_free");
  for (size_t size = 1; size < 4 * kMiB; size *= 3) {
    void* block = make(size);
    memset(block, 1, size);
    free(block);
    block = malloc(size);
    memset(block, 1, size);
    release(block);
  }
  CHECK(dlopen("libno_such_library.so", RTLD_NOW | RTLD_DEEPBIND) == nullptr);
  CHECK(strstr(dlerror(), "libno_such_library.so") != nullptr);
  return 0;
}
