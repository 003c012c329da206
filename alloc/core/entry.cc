// The exported malloc family: checks arguments like glibc, then forwards. Owns nothing.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "core/exported.h"
#include "core/foreign.h"
#include "core/misuse.h"
#include "core/thread_heap.h"
#include "os/os.h"

using namespace larder;

namespace {

LARDER_SLOW void* no_memory() {
  errno = ENOMEM;
  return nullptr;
}

LARDER_SLOW void* invalid() {
  errno = EINVAL;
  return nullptr;
}

void* realloc_any(void* p, size_t size) {
  if (p == nullptr) return malloc_fast(size);
  Slab* s = page_map.find(p);
  if (unlikely(s->kind == Kind::kNull)) {
    void* moved = nullptr;
    if (foreign_realloc(p, size, &moved)) return moved;
    report_misuse("realloc", Misuse::kNoObject, p);
    return invalid();
  }
  if (unlikely(size == 0)) {
    free_fast(p);
    return nullptr;
  }
  // A small object that moves is freed, and so checked, by resize().
  if (!is_small(s) && unlikely(looks_misused(p, s)) && misused("realloc", Misuse::kUseOfFree, p, s))
    return invalid();
  return resize(p, s, size);
}

}  // namespace

LARDER_EXPORT LARDER_HOT void* LARDER_NAME(malloc)(size_t size) noexcept {
  return malloc_fast(size);
}

LARDER_EXPORT LARDER_HOT void LARDER_NAME(free)(void* p) noexcept { free_fast(p); }

LARDER_EXPORT void* LARDER_NAME(calloc)(size_t count, size_t size) noexcept {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return no_memory();
  return zeroed_alloc(bytes);
}

LARDER_EXPORT void* LARDER_NAME(realloc)(void* p, size_t size) noexcept {
  return realloc_any(p, size);
}

LARDER_EXPORT void* LARDER_NAME(reallocarray)(void* p, size_t count, size_t size) noexcept {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return no_memory();
  return realloc_any(p, bytes);
}

LARDER_EXPORT void LARDER_NAME(free_sized)(void* p, size_t) noexcept { free_fast(p); }

LARDER_EXPORT void LARDER_NAME(free_aligned_sized)(void* p, size_t, size_t) noexcept {
  free_fast(p);
}

LARDER_EXPORT void* LARDER_NAME(aligned_alloc)(size_t align, size_t size) noexcept {
  if (unlikely(!is_pow2(align))) return invalid();
  return aligned_alloc_any(size, align);
}

LARDER_EXPORT int LARDER_NAME(posix_memalign)(void** memptr, size_t align, size_t size) noexcept {
  if (!is_pow2(align) || align % sizeof(void*) != 0) return EINVAL;
  void* p = aligned_alloc_any(size, align);
  if (p == nullptr) return ENOMEM;
  *memptr = p;
  return 0;
}

// glibc rounds up an alignment that is not a power of two, and refuses one without a next power.
LARDER_EXPORT void* LARDER_NAME(memalign)(size_t align, size_t size) noexcept {
  if (unlikely(align > SIZE_MAX / 2 + 1)) return invalid();
  return aligned_alloc_any(size, align < 16 ? 16 : pow2_ceil(align));
}

LARDER_EXPORT void* LARDER_NAME(valloc)(size_t size) noexcept {
  return aligned_alloc_any(size, os::page_size());
}

LARDER_EXPORT void* LARDER_NAME(pvalloc)(size_t size) noexcept {
  size_t system_page = os::page_size();
  if (unlikely(size > kMaxSize)) return no_memory();
  return aligned_alloc_any(size == 0 ? system_page : round_up(size, system_page), system_page);
}

LARDER_EXPORT size_t LARDER_NAME(malloc_usable_size)(void* p) noexcept {
  if (p == nullptr) return 0;
  Slab* s = page_map.find_any(p);
  if (s->kind == Kind::kNull) {
    size_t bytes = 0;
    if (!foreign_usable_size(p, &bytes)) report_misuse("malloc_usable_size", Misuse::kNoObject, p);
    return bytes;
  }
  bool is_wrong =
      unlikely(looks_misused(p, s)) && misused("malloc_usable_size", Misuse::kUseOfFree, p, s);
  return is_wrong ? 0 : usable_size(s);
}

#ifndef LARDER_PREFIXED
#include "core/other_names.h"
#endif
