// dlopen without RTLD_DEEPBIND, of the shared libraries alone. A library that is opened with it
// finds libc's malloc and free before ours, and crashes with the first object that crosses: PHP
// opens its extensions so. LARDER_DEEPBIND=1 leaves the flag as it is.
//
// Thread safety: any thread. Owns one pointer, which is the same whoever stores it.
#include <dlfcn.h>

#include <atomic>

#include "core/exported.h"
#include "os/options.h"

#ifdef RTLD_DEEPBIND

using namespace larder;

namespace {

using Dlopen = void*(const char*, int);

constinit std::atomic<Dlopen*> next{nullptr};  // relaxed: idempotent

LARDER_SLOW Dlopen* find_next() {
  auto* found = reinterpret_cast<Dlopen*>(dlsym(RTLD_NEXT, "dlopen"));
  next.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace

// A tail call: libc looks for `file` along the RUNPATH of whoever has called it.
extern "C" LARDER_EXPORT void* dlopen(const char* file, int mode) noexcept {
  Dlopen* function = next.load(std::memory_order_relaxed);
  if (unlikely(function == nullptr)) function = find_next();
  if (option(Option::kDeepbind) == 0) mode &= ~RTLD_DEEPBIND;
  return function(file, mode);
}

#endif
