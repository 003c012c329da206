// What a heap caches of the empty slabs and spans that it frees: methods of ThreadHeap.
//
// A heap caches LARDER_HEAP_EMPTY_KIB of slabs and as much of spans. A round trip through the page
// heap takes a lock, and moves memory to another processor's cache. So a heap that asks the page
// heap for what it released a moment ago raises its limit (raise_cache_limit). All heaps together
// may cache kCacheExtraBytes more that way. A heap lowers its limit by what it has not used for the
// decay time.
#include <atomic>
#include <utility>

#include "base/policy.h"
#include "base/stats.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/purge_slab.h"
#include "core/slab_span.h"
#include "core/thread_heap.h"
#include "os/options.h"
#include "os/os.h"

namespace larder {

namespace {

// The time for slab purges is spent up to here. Relaxed: a budget, exact by compare-and-swap alone.
constinit std::atomic<uint64_t> slab_purge_paid_us{0};

// LARDER_MAX_TOTAL_THREAD_CACHE_BYTES is divided: half of it evenly among the heaps, the rest among
// heaps that raise their limit.
size_t cache_limit() {
  if (unlikely(limit::pressed())) return 0;
  size_t limit = option(Option::kHeapEmptyKib) << 10;
  size_t total = option(Option::kMaxThreadCacheBytes);
  if (likely(total == 0)) return limit;
  size_t share = total / (4 * (1 + size_t(stats::get(stats::kHeaps))));
  return share < limit ? share : limit;
}

size_t cache_extra_limit() {
  size_t total = option(Option::kMaxThreadCacheBytes);
  return total == 0 ? kCacheExtraBytes : total / 2;
}

constinit std::atomic<size_t> all_cache_extra{0};  // relaxed: a sum that guards no data

}  // namespace

void forget_caches_of_others() {
  ThreadHeap* heap = thread_state.heap;
  all_cache_extra.store(heap != nullptr ? heap->cache_extra : 0, std::memory_order_relaxed);
  int64_t cached = heap != nullptr ? int64_t(heap->reported_cached_bytes) : 0;
  stats::add(stats::kHeapsCachedBytes, cached - stats::get(stats::kHeapsCachedBytes));
}

void start_slab_purge_clock() { slab_purge_paid_us.store(os::now_us(), std::memory_order_relaxed); }

void ThreadHeap::report_cached_bytes() {
  size_t cached = cached_bytes();
  if (cached == reported_cached_bytes) return;
  stats::add(stats::kHeapsCachedBytes, int64_t(cached) - int64_t(reported_cached_bytes));
  reported_cached_bytes = cached;
}

size_t ThreadHeap::cached_beyond_option() const {
  size_t limit = cache_limit();
  return (empty_bytes > limit ? empty_bytes - limit : 0) +
         (cached_span_bytes > limit ? cached_span_bytes - limit : 0);
}

void ThreadHeap::raise_cache_limit(size_t bytes) {
  cache_extra_unused = 0;
  if (evicted_bytes < bytes) return;
  evicted_bytes -= bytes;
  // Only its thread can use what a heap caches. A program with LARDER_BACKGROUND_PURGE wants memory
  // purged while it sleeps.
  if (shared || cache_limit() == 0 || option(Option::kBackgroundPurge) != 0) return;
  if (all_cache_extra.fetch_add(bytes, std::memory_order_relaxed) + bytes > cache_extra_limit())
    all_cache_extra.fetch_sub(bytes, std::memory_order_relaxed);
  else
    cache_extra += bytes;
}

void ThreadHeap::reset_cache_limit() {
  lower_cache_limit(cache_extra);
  evicted_bytes = 0;
}

void ThreadHeap::lower_cache_limit(size_t bytes) {
  if (bytes > cache_extra) bytes = cache_extra;
  if (bytes == 0) return;
  cache_extra -= bytes;
  all_cache_extra.fetch_sub(bytes, std::memory_order_relaxed);
}

// Runs after an insertion. Evicts the largest first: fewer locks for as many bytes.
void ThreadHeap::enforce_cache_limit() {
  if (++cache_events == 0 && os::now_ms() - cache_extra_since_ms >= purge_decay_ms()) {
    lower_cache_limit(cache_extra_unused);
    cache_extra_unused = cached_beyond_option();
    cache_extra_since_ms = os::now_ms();
    evicted_bytes /= 2;
  }
  if (cached_beyond_option() <= cache_extra) return;
  report_cached_bytes();
  auto too_much = [this](size_t b) {
    return b > cache_limit() && cached_beyond_option() > cache_extra;
  };
  for (unsigned pages = kMaxCachedSpanPages; pages > 0; --pages) {
    while (too_much(cached_span_bytes) && cached_spans[pages] != nullptr) {
      Slab* s = pop_cached_span(pages);
      evicted_bytes += s->bytes;
      large_free(s);
    }
  }
  for (int step = kSlabPageSteps; step-- > 0;) {
    while (too_much(empty_bytes) && !empties[step].empty()) {
      Slab* oldest = empties[step].back();
      empties[step].remove(oldest);
      empty_bytes -= slab_bytes(oldest);
      evicted_bytes += slab_bytes(oldest);
      slab_release(oldest);
    }
  }
}

void ThreadHeap::cache_empty_slab(Slab* s) {
  bins[s->size_class].partial.remove(s);
  empties[__builtin_ctz(s->pages)].push_front(s);
  empty_bytes += slab_bytes(s);
  emptied_bytes += slab_bytes(s);
  enforce_cache_limit();
}

void ThreadHeap::evict_last_freed() {
  Slab* s = std::exchange(last_freed, nullptr);
  if (s == nullptr) return;
  s->kind = Kind::kSpan;
  if (!cache_span(s)) large_free(s);
}

bool ThreadHeap::cache_span(Slab* s) {
  if (s->pages > kMaxCachedSpanPages) return false;
  cached_span_bytes += s->bytes;
  if (cached_span_bytes > cache_limit() && cached_beyond_option() > cache_extra) {
    cached_span_bytes -= s->bytes;
    evicted_bytes += s->bytes;
    return false;
  }
  s->kind = Kind::kFree;
  s->next = cached_spans[s->pages];
  cached_spans[s->pages] = s;
  enforce_cache_limit();
  return true;
}

Slab* ThreadHeap::pop_cached_span(unsigned pages) {
  Slab* s = cached_spans[pages];
  if (s == nullptr) return nullptr;
  cached_spans[pages] = s->next;
  cached_span_bytes -= s->bytes;
  s->kind = Kind::kSpan;
  return s;
}

// A span that is a little too long serves, too (kSpanFitShare).
Slab* ThreadHeap::take_cached_span(unsigned pages) {
  for (unsigned u = pages; u <= pages + pages / kSpanFitShare && u <= kMaxCachedSpanPages; ++u) {
    if (Slab* s = pop_cached_span(u)) {
      note_taken();
      return s;
    }
  }
  return nullptr;
}

void ThreadHeap::note_taken() {
  size_t beyond = cached_beyond_option();
  if (beyond < cache_extra_unused) cache_extra_unused = beyond;
}

void ThreadHeap::purge_partial_if_shrinking() {
  if (emptied_bytes < kSlabPurgeAfterBytes) return;
  emptied_bytes = 0;
  if (release_rate() == 0) return;
  uint64_t now = os::now_us(), paid = slab_purge_paid_us.load(std::memory_order_relaxed);
  uint64_t oldest = now - kSlabPurgeMaxUs * kSlabPurgeShare;
  uint64_t since = paid < oldest ? oldest : paid;
  uint64_t credit = (now - since) / kSlabPurgeShare;
  if (since > now || credit < kSlabPurgeMinUs ||
      !slab_purge_paid_us.compare_exchange_strong(paid, now, std::memory_order_relaxed))
    return;
  purge_partial(now + credit);
  uint64_t spent = os::now_us() - now;
  slab_purge_paid_us.fetch_add((spent - credit) * kSlabPurgeShare, std::memory_order_relaxed);
}

void ThreadHeap::purge_partial(uint64_t end_us) {
  unsigned looks = 0;
  for (int i = 0; i < kClasses; ++i) {
    // Larger classes first: more system pages an object.
    purge_class = (purge_class + kClasses - 1) % kClasses;
    SlabList& list = bins[purge_class].partial;
    // To the back: the slabs that are used next should be those that keep their memory.
    for (size_t left = list.size(); left > 0; --left) {
      Slab* s = list.pop_front();
      slab_purge(s);
      list.push_back(s);
      if (++looks % kSlabsAClockRead == 0 && os::now_us() >= end_us) {
        ++purge_class;
        return;
      }
    }
  }
}

size_t ThreadHeap::trim() {
  // Flushing may move the last freed span to the page heap: it counts in either case.
  size_t bytes = cached_span_bytes + (last_freed != nullptr ? last_freed->bytes : 0);
  flush();
  for (unsigned pages = 1; pages <= kMaxCachedSpanPages; ++pages)
    while (Slab* s = pop_cached_span(pages)) large_free(s);
  for (SlabList& list : empties) {
    while (Slab* s = list.pop_front()) {
      bytes += slab_bytes(s);
      slab_release(s);
    }
  }
  empty_bytes = 0;
  report_cached_bytes();
  return bytes;
}

// A cached slab of the same class keeps its free list; one of another class of the same size is
// carved anew. So is a slab whose objects have cache lines of their own: kCarvedAnewBytes.
Slab* ThreadHeap::take_cached_slab(int c) {
  SlabList& list = empties[__builtin_ctz(kSizeClasses.pages[c])];
  Slab* s = list.front();
  if (s == nullptr) return nullptr;
  Slab* same = s;
  for (int looks = kCachedSlabLooks; same != nullptr && same->size_class != c && looks > 0; --looks)
    same = same->next;
  if (same != nullptr && same->size_class == c) s = same;
  list.remove(s);
  empty_bytes -= slab_bytes(s);
  note_taken();
  uint32_t size = kSizeClasses.size[c];
  bool own_lines = size > kCacheLine && size <= kCarvedAnewBytes;
  if (s->size_class != c || own_lines || s->purged_at != 0) slab_reset(s, c);
  return s;
}

}  // namespace larder
