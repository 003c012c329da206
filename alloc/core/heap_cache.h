// What a thread heap caches of the empty slabs and spans that it frees, for its next requests.
//
// A heap caches LARDER_HEAP_EMPTY_KIB of slabs and as much of spans. A round trip through the page
// heap takes a lock, and moves memory to another processor's cache. So a heap that asks the page
// heap for what it released a moment ago raises its limit (raise_limit). All heaps together may
// cache kCacheExtraBytes more that way. A heap lowers its limit by what it has not used for the
// decay time.
//
// Ownership: the heap's thread, or the holder of its lock.
// Invariants:
//   a cached slab: the heap owns it, used == 0; a cached span, and last_freed: kind == kFree
//   empty_bytes == the sum over `empties`; span_bytes == the sum over `spans`
// Bounds: empty_bytes and span_bytes are at most the limit each, and `extra` beyond it together;
// the sum of `extra` over all heaps <= kCacheExtraBytes; last_freed is one span of any length.
#pragma once

#include <utility>

#include "base/policy.h"
#include "base/size_class.h"
#include "core/slab.h"

namespace larder {

struct HeapCache {
  SlabList empties[kSlabPageSteps];  // by log2(pages), the latest first
  size_t empty_bytes;
  Slab* spans[kMaxCachedSpanPages + 1];  // by pages, linked by next
  size_t span_bytes;
  // The one-entry cache: the span freed last. Serves sizes last_freed_min + 0..last_freed_range.
  Slab* last_freed;
  size_t last_freed_min, last_freed_range;
  size_t extra;          // bytes beyond the limit
  size_t evicted_bytes;  // released by the limit, and not asked for again yet
  size_t extra_unused;   // minimum of the unused part of `extra`
  uint64_t extra_since_ms;
  size_t reported_bytes;  // its share of kHeapsCachedBytes
  uint8_t insertions;     // since the last look at the clock

  size_t bytes() const {
    return empty_bytes + span_bytes + (last_freed != nullptr ? last_freed->bytes : 0);
  }
  // REQUIRES: the heap owns it, used == 0, and it is in no list.
  void add_slab(Slab* s);
  // An empty slab of class `c`, or nullptr.
  Slab* take_slab(int c);
  // The one that take_slab(c) would return, if it would as the class has left it; else nullptr.
  Slab* slab_as_left(int c) const;
  // REQUIRES: it is cached.
  void remove_slab(Slab* s);
  // False: it is not worth it.
  bool add_span(Slab* s);
  // At least `pages` and a little more at most, or nullptr.
  Slab* take_span(unsigned pages);

  // False: the entry is taken, or the span has a sample point.
  bool set_last_freed(Slab* s);
  bool last_freed_fits(size_t size_bytes) const {
    return last_freed != nullptr && size_bytes - last_freed_min <= last_freed_range;
  }
  // REQUIRES: it fits.
  Slab* take_last_freed() {
    Slab* s = std::exchange(last_freed, nullptr);
    s->kind = Kind::kSpan;
    return s;
  }
  // Moves the entry to the cached spans, or releases it.
  void evict_last_freed();

  // Everything goes to the page heap. Returns bytes.
  size_t release_all();
  // The heap asks the page heap for this many bytes. If it released as many before, its limit was
  // too low.
  void raise_limit(size_t more_bytes);
  // Back to LARDER_HEAP_EMPTY_KIB.
  void reset_limit();
  // Publishes bytes(), so that the purge knows what is not in use.
  void report();

 private:
  Slab* pop_span(unsigned pages);
  size_t beyond(size_t limit) const;
  void lower_limit(size_t less_bytes);
  void note_taken();
  void enforce_limit();
};

// In a fork's child: other heaps' caches no longer count.
void forget_caches_but(const HeapCache* mine);

}  // namespace larder
