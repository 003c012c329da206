// Large and huge objects, beyond a slab.
//
//   > kSmallMax   kSpan   a span
//   > kSpanMax    kHuge   a mapping at a multiple of the page, resized and moved by mremap, and
//   copied only where that refuses
//
// Freed mappings are cached (mapping_cache.h).
//
// Thread safety: any thread. Large objects are unowned (kUnowned). A descriptor is constant while
// its object is allocated, realloc excepted. Every function keeps errno.
#pragma once

#include "core/mapping_cache.h"

namespace larder {

// REQUIRES: size_bytes > kSmallMax or align > kPageBytes; align is a power of two. nullptr without
// memory. *zero: the content is known to be zero.
void* large_alloc(size_t size_bytes, size_t align, bool* zero);
void large_free(Slab* s);
// Pages of the span for an unaligned request.
inline unsigned span_pages(size_t size_bytes) {
  return unsigned((size_bytes + kPageBytes - 1) / kPageBytes);
}
// REQUIRES: span_pages(size_bytes) <= s->pages. Hands out a cached span again.
void* large_reuse(Slab* s, size_t size_bytes);
// Resizes in place or by moving system pages. Returns the object's new address; nullptr if it must
// be copied or there is no memory, and then it is unchanged.
void* large_resize(Slab* s, void* object, size_t new_bytes);
// The last resort of a mapping that grows under a limit, with no room for a copy beside it. mremap
// refuses what the kernel has as several mappings, which joined cached ranges may be. So it is
// copied piece by piece, each of which is released at once. Returns like large_resize(). O(bytes).
void* large_move_by_pieces(Slab* s, size_t new_bytes);

// A mapping that takes no lock: for a signal handler that interrupted the allocator.
void* emergency_alloc(size_t size_bytes, size_t align);

}  // namespace larder
