#include "core/foreign.h"

#include <dlfcn.h>
#include <errno.h>

namespace larder {

namespace {

struct Foreign {
  void (*free)(void*);
  void* (*realloc)(void*, size_t);
  size_t (*usable_size)(void*);
};
constinit Foreign next = {};

template <typename F>
void find(F*& function, const char* name) {
  function = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void foreign_init() {
  find(next.free, "__libc_free");
  find(next.realloc, "__libc_realloc");
  find(next.usable_size, "malloc_usable_size");
}

void foreign_free(void* p) {
  if (next.free != nullptr) next.free(p);
}

void* foreign_realloc(void* p, size_t size_bytes) {
  if (next.realloc != nullptr) return next.realloc(p, size_bytes);
  errno = ENOMEM;
  return nullptr;
}

size_t foreign_usable_size(void* p) {
  return next.usable_size != nullptr ? next.usable_size(p) : 0;
}

}  // namespace larder
