// Cached mappings: those of freed huge objects, for the next requests, and the descriptors of all.
//
// A request takes the low end of the smallest adjacent cached ranges that suffice, whichever
// mapping they came from; an object that grows takes what lies right behind it. A request that
// finds none first unmaps the oldest.
//
// Thread safety: any thread; one lock.
// Invariants:
//   cached: by address, apart from each other; cached_bytes == the sum over `cached`
//   last_freed: kind == kFree; it counts as in use
// Bounds, of `cached`: kMaxCachedMappings ranges, LARDER_HUGE_KEPT_MIB, the decay time; and
//   in use + cached_bytes <= kMappedHalves / 2 * peak of in use
// last_freed is one mapping, up to LARDER_HUGE_KEPT_MIB.
#pragma once

#include "base/function_ref.h"
#include "core/slab.h"

namespace larder {

class Lock;

// A mapped range without an object.
struct CachedRange {
  char* base;  // a multiple of large_granule(), as `bytes` is
  size_t bytes;
  Slab* slab;  // of the object that began here, or nullptr
  uint64_t freed_ms;
};

// The unit of mappings in bytes: an object has its first page to itself, because the page map
// resolves pages.
size_t large_granule();
inline size_t large_usable(const Slab* s) { return s->bytes - s->offset; }

// A descriptor that is never freed, and known to readers outside of the process; or nullptr.
Slab* large_make_descriptor();
// A descriptor with base and bytes, from the smallest cached ranges that fit; or nullptr.
Slab* large_take_cached(size_t bytes, size_t align);
// Grows the object into cached ranges right behind it.
bool large_absorb(Slab* s, size_t more_bytes);
// Before `bytes` are mapped: keeps the bound.
void large_make_room(size_t bytes);
// REQUIRES: no thread can reach s. Caches its mapping, or unmaps it.
void large_free_mapping(Slab* s);
// Caches the range, if it may and is worth it, or unmaps it.
void large_free_range(const CachedRange& range, bool may_cache);

// The one-entry cache of the process: the mapping freed last, which the next request of its size
// takes without a lock. Any other request and each purge evict it. False: `s` must be freed.
bool large_cache_last_freed(Slab* s);
// Whether it seems that at most one part in kLastFreedFitShare of the entry would stay unused.
bool large_last_freed_fits(size_t size_bytes);
// The entry, if it fits so; else nullptr, and the entry is evicted.
Slab* large_take_last_freed(size_t size_bytes);
// Moves the entry to the cached mappings.
void large_evict_last_freed();

// Unmaps mappings that were cached at or before the deadline, oldest first, until `bytes` are
// released. Returns bytes.
size_t large_release_cached(size_t bytes, uint64_t deadline_ms);
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

}  // namespace larder
