#include "core/heap_cache.h"

#include <atomic>
#include <utility>

#include "base/stats.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/purge.h"
#include "core/slab_span.h"
#include "os/options.h"
#include "os/os.h"

namespace larder {

namespace {

// LARDER_MAX_TOTAL_THREAD_CACHE_BYTES is divided: half of it evenly among the heaps, the rest among
// heaps that raise their limit.
size_t limit_bytes() {
  if (unlikely(limit::pressed())) return 0;
  size_t limit = option(Option::kHeapEmptyKib) << 10;
  size_t total = option(Option::kMaxThreadCacheBytes);
  if (likely(total == 0)) return limit;
  size_t share = total / (4 * (1 + size_t(stats::get(stats::kHeaps))));
  return share < limit ? share : limit;
}

size_t all_extra_limit() {
  size_t total = option(Option::kMaxThreadCacheBytes);
  return total == 0 ? kCacheExtraBytes : total / 2;
}

constinit std::atomic<size_t> all_extra{0};  // relaxed: a sum that guards no data

}  // namespace

void forget_caches_but(const HeapCache* mine) {
  all_extra.store(mine != nullptr ? mine->extra : 0, std::memory_order_relaxed);
  int64_t cached = mine != nullptr ? int64_t(mine->reported_bytes) : 0;
  stats::add(stats::kHeapsCachedBytes, cached - stats::get(stats::kHeapsCachedBytes));
}

void HeapCache::report() {
  size_t cached = bytes();
  if (cached == reported_bytes) return;
  stats::add(stats::kHeapsCachedBytes, int64_t(cached) - int64_t(reported_bytes));
  reported_bytes = cached;
}

// --- the limit

size_t HeapCache::beyond(size_t limit) const {
  return (empty_bytes > limit ? empty_bytes - limit : 0) +
         (span_bytes > limit ? span_bytes - limit : 0);
}

void HeapCache::raise_limit(size_t more_bytes) {
  extra_unused = 0;
  if (evicted_bytes < more_bytes) return;
  evicted_bytes -= more_bytes;
  // A program with LARDER_BACKGROUND_PURGE wants memory purged while it sleeps.
  if (limit_bytes() == 0 || option(Option::kBackgroundPurge) != 0) return;
  // Looks first: where the sum stays at its bound, its line stays in every processor's cache.
  size_t limit = all_extra_limit();
  if (all_extra.load(std::memory_order_relaxed) + more_bytes > limit) return;
  if (all_extra.fetch_add(more_bytes, std::memory_order_relaxed) + more_bytes > limit)
    all_extra.fetch_sub(more_bytes, std::memory_order_relaxed);
  else
    extra += more_bytes;
}

void HeapCache::reset_limit() {
  lower_limit(extra);
  evicted_bytes = 0;
}

void HeapCache::lower_limit(size_t less_bytes) {
  if (less_bytes > extra) less_bytes = extra;
  if (less_bytes == 0) return;
  extra -= less_bytes;
  all_extra.fetch_sub(less_bytes, std::memory_order_relaxed);
}

void HeapCache::note_taken() {
  size_t left = beyond(limit_bytes());
  if (left < extra_unused) extra_unused = left;
}

// Runs after an insertion. Evicts the largest first: fewer locks for as many bytes.
void HeapCache::enforce_limit() {
  size_t limit = limit_bytes();
  if (++insertions == 0 && os::now_ms() - extra_since_ms >= purge_decay_ms()) {
    lower_limit(extra_unused);
    extra_unused = beyond(limit);
    extra_since_ms = os::now_ms();
    evicted_bytes /= 2;
  }
  if (beyond(limit) <= extra) return;
  report();
  auto too_much = [this, limit](size_t b) { return b > limit && beyond(limit) > extra; };
  for (unsigned pages = kMaxCachedSpanPages; pages > 0 && too_much(span_bytes); --pages) {
    while (too_much(span_bytes) && spans[pages] != nullptr) {
      Slab* s = pop_span(pages);
      evicted_bytes += s->bytes;
      large_free(s);
    }
  }
  for (int step = kSlabPageSteps; step-- > 0 && too_much(empty_bytes);) {
    while (too_much(empty_bytes) && !empties[step].empty()) {
      Slab* oldest = empties[step].back();
      empties[step].remove(oldest);
      empty_bytes -= slab_bytes(oldest);
      evicted_bytes += slab_bytes(oldest);
      slab_release(oldest);
    }
  }
}

// --- slabs

void HeapCache::add_slab(Slab* s) {
  empties[__builtin_ctz(s->pages)].push_front(s);
  empty_bytes += slab_bytes(s);
  enforce_limit();
}

void HeapCache::remove_slab(Slab* s) {
  empties[__builtin_ctz(s->pages)].remove(s);
  empty_bytes -= slab_bytes(s);
  note_taken();
}

// One of the same class keeps its free list; one of another class is carved anew. So is a slab
// whose objects have cache lines of their own: kCarvedAnewBytes.
Slab* HeapCache::slab_as_left(int c) const {
  uint32_t size = kSizeClasses.size[c];
  if (size > kCacheLine && size <= kCarvedAnewBytes) return nullptr;
  Slab* s = empties[__builtin_ctz(kSizeClasses.pages[c])].front();
  return s != nullptr && s->size_class == c && s->purged_at == 0 ? s : nullptr;
}

// The latest.
Slab* HeapCache::take_slab(int c) {
  Slab* s = empties[__builtin_ctz(kSizeClasses.pages[c])].front();
  if (s == nullptr) return nullptr;
  bool as_left = slab_as_left(c) != nullptr;
  remove_slab(s);
  if (!as_left) slab_reset(s, c);
  return s;
}

// --- spans

bool HeapCache::add_span(Slab* s) {
  if (s->pages > kMaxCachedSpanPages) return false;
  size_t limit = limit_bytes();
  span_bytes += s->bytes;
  if (span_bytes > limit && beyond(limit) > extra) {
    span_bytes -= s->bytes;
    evicted_bytes += s->bytes;
    return false;
  }
  s->kind = Kind::kFree;
  s->next = spans[s->pages];
  spans[s->pages] = s;
  enforce_limit();
  return true;
}

Slab* HeapCache::pop_span(unsigned pages) {
  Slab* s = spans[pages];
  if (s == nullptr) return nullptr;
  spans[pages] = s->next;
  span_bytes -= s->bytes;
  s->kind = Kind::kSpan;
  return s;
}

// A span that is a little too long serves, too (kSpanFitShare).
Slab* HeapCache::take_span(unsigned pages) {
  for (unsigned u = pages; u <= pages + pages / kSpanFitShare && u <= kMaxCachedSpanPages; ++u) {
    if (Slab* s = pop_span(u)) {
      note_taken();
      return s;
    }
  }
  return nullptr;
}

bool HeapCache::set_last_freed(Slab* s) {
  if (last_freed != nullptr || s->sample_point != nullptr) return false;
  s->kind = Kind::kFree;
  last_freed = s;
  last_freed_min = s->bytes - kPageBytes + 1;
  last_freed_range = large_usable(s) - last_freed_min;
  return true;
}

void HeapCache::evict_last_freed() {
  Slab* s = std::exchange(last_freed, nullptr);
  if (s == nullptr) return;
  s->kind = Kind::kSpan;
  if (!add_span(s)) large_free(s);
}

size_t HeapCache::release_all() {
  size_t released = bytes();
  if (last_freed != nullptr) large_free(take_last_freed());
  for (unsigned pages = 1; pages <= kMaxCachedSpanPages; ++pages)
    while (Slab* s = pop_span(pages)) large_free(s);
  for (SlabList& list : empties)
    while (Slab* s = list.pop_front()) slab_release(s);
  empty_bytes = 0;
  report();
  return released;
}

}  // namespace larder
