// Objects beyond a slab: runs of units, whole blocks, and mappings of their own.
//
//   > kSmallMax    kRun    units of a block
//   > kRunMax      kLarge  several blocks
//   >= kHugeMin    kHuge   a mapping, aligned to a unit, resized and moved by mremap, never copied
//
// Freed mappings are kept for the purge's decay time, up to LARDER_HUGE_KEPT_MIB, and reused for
// requests of at least half of their size, 4/5 beyond 32 MiB. A request that finds none first
// releases kept ones of its own size, so that the peak is not raised.
//
// Thread safety: any thread. A large object belongs to nobody; its owner in the descriptor is
// kNobody, and its descriptor is constant while it is allocated, realloc excepted. Every function
// keeps errno.
#pragma once

#include "slab.h"

namespace larder {

class Lock;

// size_bytes > kSmallMax or align > kUnit; align a power of two. nullptr without memory.
// *zero tells whether the content is known to be zero.
void* large_alloc(size_t size_bytes, size_t align, bool* zero);
void large_free(Slab* s);
// Units of the run that serves an unaligned request.
inline unsigned run_units(size_t size_bytes) { return unsigned((size_bytes + kUnit - 1) / kUnit); }
// A run that was kept by a heap serves again: run_units(size_bytes) == s->units.
void* large_reuse(Slab* s, size_t size_bytes);
inline size_t large_usable(const Slab* s) { return s->bytes - s->offset; }
// Resizes without copying: where it is, or by moving pages. The object's new address, or nullptr
// if it must be copied (or there is no memory); it is unchanged then.
void* large_resize(Slab* s, void* object, size_t new_bytes);

// Kept mappings last used at or before the deadline are unmapped. Bytes given back.
size_t large_release_kept(uint64_t deadline_ms);
size_t large_kept_bytes();
Lock& large_lock();

// A mapping of its own that takes no lock: for a signal handler that interrupted an allocation.
void* emergency_alloc(size_t size_bytes, size_t align);

}  // namespace larder
