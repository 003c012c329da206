// Large and huge objects, beyond a slab.
//
//   > kSmallMax   kSpan   a span
//   > kSpanMax    kHuge   a mapping at a multiple of the page, resized and moved by mremap, and
//   copied only where that refuses
//
// Freed mappings are cached for the decay time: up to LARDER_HUGE_KEPT_MIB in kMaxCachedMappings
// ranges. A request takes the low end of the smallest adjacent cached ranges that suffice,
// whichever mapping they came from. A request that finds none first unmaps the oldest, so that in
// use + cached <= kMappedHalves / 2 * peak of in use.
//
// Thread safety: any thread. Large objects are unowned (kUnowned). A descriptor is constant while
// its object is allocated, realloc excepted. Every function keeps errno.
#pragma once

#include "base/function_ref.h"
#include "core/slab.h"

namespace larder {

class Lock;

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
inline size_t large_usable(const Slab* s) { return s->bytes - s->offset; }
// The unit of mappings in bytes: an object has its first page to itself, because the page map
// resolves pages.
size_t large_granule();
// A descriptor that is never freed, and known to readers outside of the process; or nullptr.
Slab* large_make_descriptor();
// Resizes in place or by moving system pages. Returns the object's new address; nullptr if it must
// be copied or there is no memory, and then it is unchanged.
void* large_resize(Slab* s, void* object, size_t new_bytes);
// The last resort of a mapping that grows under a limit, with no room for a copy beside it. mremap
// refuses what the kernel has as several mappings, which joined cached ranges may be. So it is
// copied piece by piece, each of which is released at once. Returns like large_resize(). O(bytes).
void* large_move_by_pieces(Slab* s, size_t new_bytes);

// The one-entry cache of the process: the mapping freed last, which the next request of its size
// takes without a lock. Any other request and each purge evict it. False: `s` must be freed.
bool large_cache_last_freed(Slab* s);
// Whether it seems that at most one part in kLastFreedFitShare of the entry would stay unused.
bool large_last_freed_fits(size_t size_bytes);
// The entry, if it fits so; else nullptr, and the entry is evicted.
Slab* large_take_last_freed(size_t size_bytes);
// Moves the entry to the cached mappings.
void large_evict_last_freed();

// Unmaps mappings that were cached at or before the deadline. Returns bytes.
size_t large_release_cached(uint64_t deadline_ms);
size_t large_cached_bytes();
// Bytes of cached mappings that were handed out again, since the start.
uint64_t large_reused_bytes();
// Bytes of mappings in use, without the one-entry cache.
size_t large_used_bytes();
bool large_has_cached();
// Calls `visit(base, bytes, offset of the object)` for each mapping in use, and `visit(base,
// bytes)` for each cached one. Holds no lock: concurrent changes may be missed.
void large_for_each(FunctionRef<void(const char*, size_t, size_t)> visit);
void large_for_each_cached(FunctionRef<void(const char*, size_t)> visit);
Lock& large_lock();

// A mapping that takes no lock: for a signal handler that interrupted the allocator.
void* emergency_alloc(size_t size_bytes, size_t align);

}  // namespace larder
