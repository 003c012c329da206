// The front: what the exported malloc family does to each object, before the heap and behind it.
// One of two, chosen for a library as a whole: Plain adds nothing, Hardened (hardened.h) checks.
#pragma once

#ifdef LARDER_HARDENED
#include "core/hardened.h"
#else
#include "core/misuse.h"
#include "core/thread_heap.h"
#endif

namespace larder {

#ifdef LARDER_HARDENED
using Front = Hardened;
#else

struct Plain {
  // Bytes of the front's own at the end of an object.
  static constexpr size_t kRoom = 0;

  LARDER_FAST static void* allocate(size_t size_bytes) { return malloc_fast(size_bytes); }
  LARDER_FAST static void* allocate_zeroed(size_t size_bytes) { return zeroed_alloc(size_bytes); }
  LARDER_FAST static void* allocate_aligned(size_t size_bytes, size_t align) {
    return aligned_alloc_any(size_bytes, align);
  }
  LARDER_FAST static void free(void* p) { free_fast(p); }
  // REQUIRES: offset == map->offset_at(p).
  LARDER_FAST static void free_at(void* p, const ProcessPageMap* map, uintptr_t offset) {
    larder::free_at(p, map, offset);
  }
  // Whether realloc has nothing to do. Any slab, and any size.
  LARDER_FAST static bool stays(const Slab* s, size_t size_bytes) {
    return s->kind == Kind::kSlab && serves(kSizeClasses.size[s->size_class], size_bytes);
  }
  // REQUIRES: size_bytes != 0, p is Larder's, and checked; it does not stay.
  LARDER_FAST static void* resize(void* p, Slab* s, size_t size_bytes) {
    return larder::resize(p, s, size_bytes);
  }
  // All that is touched already.
  static size_t carve_end(const Slab* s, size_t end) { return end < s->touched ? s->touched : end; }
  // In the order of memory.
  static void* link_carved(Slab* s, char* first, uint32_t count) {
    const size_t size = kSizeClasses.size[s->size_class];
    char* p = first;
    for (uint32_t i = 1; i < count; ++i, p += size) set_next(p, p + size);
    set_next(p, nullptr);
    return first;
  }
  // What the program may use.
  LARDER_FAST static size_t usable(const Slab* s) { return usable_size(s); }
  // Whether `p`, of Larder's memory, is an object in use; what is not is reported. A small object
  // that moves is freed, and so checked, by resize().
  LARDER_FAST static bool may_resize(const void* p, const Slab* s) {
    return is_small(s) || likely(!looks_misused(p, s)) ||
           !misused("realloc", Misuse::kUseOfFree, p, s);
  }
  LARDER_FAST static bool may_measure(const void* p, const Slab* s) {
    return likely(!looks_misused(p, s)) || !misused("malloc_usable_size", Misuse::kUseOfFree, p, s);
  }
};
using Front = Plain;
#endif

}  // namespace larder
