// Objects beyond a slab: spans, and mappings of their own.
//
//   > kSmallMax    kSpan    pages of a block
//   > kSpanMax      kHuge   a mapping, aligned to a page, resized and moved by mremap, never copied
//
// Freed mappings are kept for the purge's decay time, up to LARDER_HUGE_KEPT_MIB in 128 pieces. A
// request takes the low end of the smallest kept memory that lies together and suffices, whoever
// mapped it. One that finds none first releases the oldest, so that what is handed out and kept
// stays within 3/2 of the most that was ever handed out.
//
// Thread safety: any thread. A large object belongs to nobody; its owner in the descriptor is
// kUnowned, and its descriptor is constant while it is allocated, realloc excepted. Every function
// keeps errno.
#pragma once

#include "core/slab.h"

namespace larder {

class Lock;

// size_bytes > kSmallMax or align > kPageBytes; align a power of two. nullptr without memory.
// *zero tells whether the content is known to be zero.
void* large_alloc(size_t size_bytes, size_t align, bool* zero);
void large_free(Slab* s);
// Pages of the span that serves an unaligned request.
inline unsigned span_pages(size_t size_bytes) {
  return unsigned((size_bytes + kPageBytes - 1) / kPageBytes);
}
// A span that was kept by a heap serves again: span_pages(size_bytes) <= s->pages.
void* large_reuse(Slab* s, size_t size_bytes);
inline size_t large_usable(const Slab* s) { return s->bytes - s->offset; }
// Resizes without copying: where it is, or by moving pages. The object's new address, or nullptr
// if it must be copied (or there is no memory); it is unchanged then.
void* large_resize(Slab* s, void* object, size_t new_bytes);

// One freed mapping of the process waits where a request of its size finds it without a lock, until
// another request comes, or a tick of the purge. False: it has to be freed, another one waits.
bool large_cache_last_freed(Slab* s);
// The waiting one, if it is hardly larger.
void* large_take_last_freed(size_t size_bytes);
// It becomes one of the kept.
void large_evict_last_freed();

// Kept mappings last used at or before the deadline are unmapped. Bytes given back.
size_t large_release_cached(uint64_t deadline_ms);
size_t large_cached_bytes();
// Of kept mappings handed out again, since the start.
uint64_t large_reused_bytes();
// Of mappings that are in use, less the one that waits.
size_t large_used_bytes();
bool large_has_cached();
// Calls `visit(base, bytes, offset of the object, context)` for each mapping that is in use; and
// `visit(base, bytes, context)` for each kept one. No lock is held: those that come or go meanwhile
// may be met or not.
void large_for_each(void (*visit)(const char*, size_t, size_t, void*), void* context);
void large_for_each_cached(void (*visit)(const char*, size_t, void*), void* context);
Lock& large_lock();

// A mapping of its own that takes no lock: for a signal handler that interrupted an allocation.
void* emergency_alloc(size_t size_bytes, size_t align);

}  // namespace larder
