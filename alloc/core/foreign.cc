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
constinit bool is_started = false;

template <typename F>
void find(F*& function, const char* name) {
  function = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void foreign_init(bool is_alone) {
  if (!is_alone) {
    find(next.free, "__libc_free");
    find(next.realloc, "__libc_realloc");
    find(next.usable_size, "malloc_usable_size");
  }
  is_started = true;
}

bool foreign_free(void* p) {
  if (next.free != nullptr) next.free(p);
  return next.free != nullptr || !is_started;
}

bool foreign_realloc(void* p, size_t size_bytes, void** result) {
  if (next.realloc == nullptr) errno = ENOMEM;
  *result = next.realloc != nullptr ? next.realloc(p, size_bytes) : nullptr;
  return next.realloc != nullptr || !is_started;
}

bool foreign_usable_size(void* p, size_t* bytes) {
  *bytes = next.usable_size != nullptr ? next.usable_size(p) : 0;
  return next.usable_size != nullptr || !is_started;
}

}  // namespace larder
