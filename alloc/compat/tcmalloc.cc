// tcmalloc's names for the malloc family and the C++ operators (include/gperftools/tcmalloc.h).
// They stay Larder's, even if the program replaces malloc or new.
//
// Compiled with exceptions, but needs no libstdc++ (new_delete.cc).

#include <errno.h>

#include <atomic>

#include "core/new_delete.h"
#include "core/own.h"
#include "core/thread_heap.h"

#pragma GCC visibility push(default)
#include "gperftools/nallocx.h"
#include "gperftools/tcmalloc.h"
#pragma GCC visibility pop

__asm__(".weak __gxx_personality_v0");
__asm__(".weak __cxa_begin_catch");
__asm__(".weak __cxa_end_catch");

using namespace larder;

namespace {

// Relaxed: it publishes nothing.
constinit std::atomic<int> new_mode{0};

// Like operator new, but on failure returns like malloc.
template <typename Attempt>
LARDER_SLOW void* with_handler(Attempt attempt) {
  while (new_mode.load(std::memory_order_relaxed) != 0 && errno == ENOMEM) {
    std::new_handler handler = current_new_handler();
    if (handler == nullptr) break;
    try {
      handler();
    } catch (...) {
      errno = ENOMEM;
      break;
    }
    if (void* p = attempt()) return p;
  }
  return nullptr;
}

template <typename Attempt>
LARDER_FAST void* or_handler(Attempt attempt) {
  void* p = attempt();
  return likely(p != nullptr) ? p : with_handler(attempt);
}

LARDER_FAST void* new_any(size_t size) {
  void* p = malloc_fast(size);
  return likely(p != nullptr) ? p : new_slow(size, 16);
}

LARDER_FAST void* new_any(size_t size, std::align_val_t align) {
  void* p = aligned_alloc_any(size, size_t(align));
  return likely(p != nullptr) ? p : new_slow(size, size_t(align));
}

template <typename... Arguments>
LARDER_FAST void* new_or_null(Arguments... arguments) noexcept {
  try {
    return new_any(arguments...);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

extern "C" {

const char* tc_version(int* major, int* minor, const char** patch) noexcept {
  if (major != nullptr) *major = TC_VERSION_MAJOR;
  if (minor != nullptr) *minor = TC_VERSION_MINOR;
  if (patch != nullptr) *patch = TC_VERSION_PATCH;
  return TC_VERSION_STRING;
}

int tc_set_new_mode(int mode) noexcept {
  return new_mode.exchange(mode, std::memory_order_relaxed);
}
int tc_query_new_mode() noexcept { return new_mode.load(std::memory_order_relaxed); }

void* tc_malloc(size_t size) noexcept {
  return or_handler([=] { return malloc_fast(size); });
}
void* tc_malloc_skip_new_handler(size_t size) noexcept { return malloc_fast(size); }
void* tc_calloc(size_t count, size_t size) noexcept {
  return or_handler([=] { return larder_own_calloc(count, size); });
}
void* tc_realloc(void* p, size_t size) noexcept {
  void* moved = larder_own_realloc(p, size);
  if (likely(moved != nullptr) || size == 0) return moved;
  return with_handler([=] { return larder_own_realloc(p, size); });
}
void* tc_memalign(size_t align, size_t size) noexcept {
  return or_handler([=] { return larder_own_memalign(align, size); });
}
int tc_posix_memalign(void** memptr, size_t align, size_t size) noexcept {
  int error = 0;
  // Returns its error, and leaves errno.
  int saved = errno;
  auto attempt = [&]() -> void* {
    error = larder_own_posix_memalign(memptr, align, size);
    errno = error;
    return error == 0 ? *memptr : nullptr;
  };
  or_handler(attempt);
  errno = saved;
  return error;
}
void* tc_valloc(size_t size) noexcept {
  return or_handler([=] { return larder_own_valloc(size); });
}
void* tc_pvalloc(size_t size) noexcept {
  return or_handler([=] { return larder_own_pvalloc(size); });
}

void tc_free(void* p) noexcept { free_fast(p); }
void tc_cfree(void* p) noexcept { free_fast(p); }
void tc_free_sized(void* p, size_t) noexcept { free_fast(p); }

size_t tc_malloc_size(void* p) noexcept { return larder_own_malloc_usable_size(p); }
void tc_malloc_stats() noexcept { larder_own_malloc_stats(); }
int tc_mallopt(int parameter, int value) noexcept { return larder_own_mallopt(parameter, value); }
struct mallinfo tc_mallinfo() noexcept { return larder_own_mallinfo(); }
struct mallinfo2 tc_mallinfo2() noexcept { return larder_own_mallinfo2(); }

void* tc_new(size_t size) { return new_any(size); }
void* tc_newarray(size_t size) { return new_any(size); }
void* tc_new_nothrow(size_t size, const std::nothrow_t&) noexcept { return new_or_null(size); }
void* tc_newarray_nothrow(size_t size, const std::nothrow_t&) noexcept { return new_or_null(size); }
void* tc_new_aligned(size_t size, std::align_val_t align) { return new_any(size, align); }
void* tc_newarray_aligned(size_t size, std::align_val_t align) { return new_any(size, align); }
void* tc_new_aligned_nothrow(size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return new_or_null(size, align);
}
void* tc_newarray_aligned_nothrow(size_t size, std::align_val_t align,
                                  const std::nothrow_t&) noexcept {
  return new_or_null(size, align);
}

void tc_delete(void* p) noexcept { free_fast(p); }
void tc_delete_sized(void* p, size_t) noexcept { free_fast(p); }
void tc_delete_nothrow(void* p, const std::nothrow_t&) noexcept { free_fast(p); }
void tc_delete_aligned(void* p, std::align_val_t) noexcept { free_fast(p); }
void tc_delete_sized_aligned(void* p, size_t, std::align_val_t) noexcept { free_fast(p); }
void tc_delete_aligned_nothrow(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  free_fast(p);
}
void tc_deletearray(void* p) noexcept { free_fast(p); }
void tc_deletearray_sized(void* p, size_t) noexcept { free_fast(p); }
void tc_deletearray_nothrow(void* p, const std::nothrow_t&) noexcept { free_fast(p); }
void tc_deletearray_aligned(void* p, std::align_val_t) noexcept { free_fast(p); }
void tc_deletearray_sized_aligned(void* p, size_t, std::align_val_t) noexcept { free_fast(p); }
void tc_deletearray_aligned_nothrow(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  free_fast(p);
}

}  // extern "C"
