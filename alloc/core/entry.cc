// The exported malloc family: checks arguments like glibc, then forwards. Owns nothing.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "core/exported.h"
#include "core/foreign.h"
#include "core/front.h"
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

LARDER_WARM void* realloc_slow(void* p, size_t size) {
  if (p == nullptr) return Front::allocate(size);
  Slab* s = page_map.find(p);
  if (unlikely(s->kind == Kind::kNull)) {
    void* moved = nullptr;
    if (foreign_realloc(p, size, &moved)) return moved;
    report_misuse("realloc", Misuse::kNoObject, p);
    return invalid();
  }
  if (unlikely(size == 0)) {
    Front::free(p);
    return nullptr;
  }
  return Front::may_resize(p, s) ? Front::resize(p, s, size) : invalid();
}

LARDER_FAST void* realloc_fast(void* p, size_t size) {
  return likely(Front::stays(page_map.find(p), size)) ? p : realloc_slow(p, size);
}

}  // namespace

size_t larder::carve_end(const Slab* s, size_t end) { return Front::carve_end(s, end); }

void* larder::link_carved(Slab* s, char* first, uint32_t count) {
  return Front::link_carved(s, first, count);
}

LARDER_EXPORT LARDER_HOT void* LARDER_NAME(malloc)(size_t size) noexcept {
  return Front::allocate(size);
}

LARDER_EXPORT LARDER_HOT void LARDER_NAME(free)(void* p) noexcept { Front::free(p); }

LARDER_EXPORT void* LARDER_NAME(calloc)(size_t count, size_t size) noexcept {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return no_memory();
  return Front::allocate_zeroed(bytes);
}

LARDER_EXPORT LARDER_HOT void* LARDER_NAME(realloc)(void* p, size_t size) noexcept {
  return realloc_fast(p, size);
}

LARDER_EXPORT void* LARDER_NAME(reallocarray)(void* p, size_t count, size_t size) noexcept {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return no_memory();
  return realloc_fast(p, bytes);
}

LARDER_EXPORT void LARDER_NAME(free_sized)(void* p, size_t) noexcept { Front::free(p); }

LARDER_EXPORT void LARDER_NAME(free_aligned_sized)(void* p, size_t, size_t) noexcept {
  Front::free(p);
}

LARDER_EXPORT void* LARDER_NAME(aligned_alloc)(size_t align, size_t size) noexcept {
  if (unlikely(!is_pow2(align))) return invalid();
  return Front::allocate_aligned(size, align);
}

LARDER_EXPORT int LARDER_NAME(posix_memalign)(void** memptr, size_t align, size_t size) noexcept {
  if (!is_pow2(align) || align % sizeof(void*) != 0) return EINVAL;
  void* p = Front::allocate_aligned(size, align);
  if (p == nullptr) return ENOMEM;
  *memptr = p;
  return 0;
}

// glibc rounds up an alignment that is not a power of two, and refuses one without a next power.
LARDER_EXPORT void* LARDER_NAME(memalign)(size_t align, size_t size) noexcept {
  if (unlikely(align > SIZE_MAX / 2 + 1)) return invalid();
  return Front::allocate_aligned(size, align < 16 ? 16 : pow2_ceil(align));
}

LARDER_EXPORT void* LARDER_NAME(valloc)(size_t size) noexcept {
  return Front::allocate_aligned(size, os::page_size());
}

LARDER_EXPORT void* LARDER_NAME(pvalloc)(size_t size) noexcept {
  size_t system_page = os::page_size();
  if (unlikely(size > kMaxSize)) return no_memory();
  return Front::allocate_aligned(size == 0 ? system_page : round_up(size, system_page),
                                 system_page);
}

LARDER_EXPORT size_t LARDER_NAME(malloc_usable_size)(void* p) noexcept {
  if (p == nullptr) return 0;
  Slab* s = page_map.find_any(p);
  if (s->kind == Kind::kNull) {
    size_t bytes = 0;
    if (!foreign_usable_size(p, &bytes)) report_misuse("malloc_usable_size", Misuse::kNoObject, p);
    return bytes;
  }
  return Front::may_measure(p, s) ? Front::usable(s) : 0;
}

#ifndef LARDER_PREFIXED
#include "core/other_names.h"
#endif
