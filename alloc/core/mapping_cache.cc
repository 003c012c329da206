#include "core/mapping_cache.h"

#include <string.h>

#include <new>

#include "base/layout.h"
#include "base/policy.h"
#include "base/stats.h"
#include "core/limit.h"
#include "core/meta.h"
#include "core/page_map.h"
#include "core/sampler.h"
#include "os/backing.h"

namespace larder {

namespace {

struct MappingCache {
  Lock lock;
  Slab* unused LARDER_GUARDED_BY(lock) = nullptr;  // unused ones, by next
  Slab* all LARDER_GUARDED_BY(lock) = nullptr;     // used and unused ones, by prev
  CachedRange cached[kMaxCachedMappings] LARDER_GUARDED_BY(lock) = {};  // by address
  int cached_count LARDER_GUARDED_BY(lock) = 0;
  // Relaxed where read without the lock: hints, which a caller that acts on them reads again.
  std::atomic<size_t> cached_bytes{0};
  std::atomic<Slab*> last_freed{nullptr};             // counts as in use
  std::atomic<size_t> last_freed_bytes{0};            // of the last entry
  uint64_t reused_bytes LARDER_GUARDED_BY(lock) = 0;  // of cached mappings, since the start
};
constinit MappingCache mappings;

Slab* new_descriptor() LARDER_REQUIRES(mappings.lock) {
  if (Slab* s = mappings.unused) {
    mappings.unused = s->next;
    return s;
  }
  void* memory = meta_alloc(sizeof(Slab), alignof(Slab));
  if (memory == nullptr) return nullptr;
  auto* s = new (memory) Slab;
  s->prev = mappings.all;
  return mappings.all = s;
}

void drop_descriptor(Slab* s) LARDER_REQUIRES(mappings.lock) {
  if (s == nullptr) return;
  page_map.set(s->base, 1, nullptr);
  s->kind = Kind::kFree;
  s->next = mappings.unused;
  mappings.unused = s;
}

// No read-modify-write: the lock is held.
void count_cached(size_t bytes) LARDER_REQUIRES(mappings.lock) {
  mappings.cached_bytes.store(mappings.cached_bytes.load(std::memory_order_relaxed) + bytes,
                              std::memory_order_relaxed);
}

char* end_of(const CachedRange& range) { return range.base + range.bytes; }

void erase_cached(int first, int count) LARDER_REQUIRES(mappings.lock) {
  mappings.cached_count -= count;
  memmove(&mappings.cached[first], &mappings.cached[first + count],
          size_t(mappings.cached_count - first) * sizeof(CachedRange));
}

// False: the table is full.
bool insert_cached(const CachedRange& range) LARDER_REQUIRES(mappings.lock) {
  if (mappings.cached_count == kMaxCachedMappings) return false;
  int at = mappings.cached_count++;
  for (; at > 0 && mappings.cached[at - 1].base > range.base; --at)
    mappings.cached[at] = mappings.cached[at - 1];
  mappings.cached[at] = range;
  count_cached(range.bytes);
  return true;
}

// munmap may refuse (too many mappings). Then the range is discarded and cached. False.
bool unmap_or_cache(CachedRange range) {
  {
    LockGuard guard(mappings.lock);
    drop_descriptor(range.slab);
  }
  if (backing::unmap(range.base, range.bytes)) return true;
  backing::discard(range.base, range.bytes);
  range.slab = nullptr;
  range.freed_ms = os::now_ms();
  LockGuard guard(mappings.lock);
  insert_cached(range);
  return false;
}

// Bytes of the adjacent ranges from cached[i] on, until at least `enough`.
size_t bytes_from(int i, size_t enough) LARDER_REQUIRES(mappings.lock) {
  size_t bytes = mappings.cached[i].bytes;
  for (; bytes < enough && i + 1 < mappings.cached_count; ++i) {
    if (end_of(mappings.cached[i]) != mappings.cached[i + 1].base) break;
    bytes += mappings.cached[i + 1].bytes;
  }
  return bytes;
}

// Takes `bytes`, or a little more, from cached[i] on. Returns the bytes taken.
// REQUIRES: bytes_from(i, bytes) >= bytes
size_t consume(int i, size_t bytes) LARDER_REQUIRES(mappings.lock) {
  size_t taken = 0;
  int whole = 0;
  for (CachedRange* range = &mappings.cached[i]; taken < bytes; ++range) {
    drop_descriptor(range->slab);
    range->slab = nullptr;
    size_t wanted = bytes - taken;
    if (range->bytes < wanted + kMinCachedBytes) wanted = range->bytes;
    taken += wanted;
    range->base += wanted;
    range->bytes -= wanted;
    if (range->bytes == 0) ++whole;
  }
  erase_cached(i, whole);
  count_cached(-taken);
  mappings.reused_bytes += taken;
  return taken;
}

// Unmaps cached ranges, oldest first, until `bytes` are released, or a little more; of a larger one
// its end.
size_t release_cached_bytes(size_t bytes, uint64_t deadline_ms) {
  size_t released = 0;
  // A refused munmap puts its range back: the iterations are bounded.
  for (int turn = 0; turn < kMaxCachedMappings && released < bytes; ++turn) {
    CachedRange range;
    {
      LockGuard guard(mappings.lock);
      int oldest = -1;
      for (int i = 0; i < mappings.cached_count; ++i)
        if (mappings.cached[i].freed_ms <= deadline_ms &&
            (oldest < 0 || mappings.cached[i].freed_ms < mappings.cached[oldest].freed_ms))
          oldest = i;
      if (oldest < 0) break;
      CachedRange& cached = mappings.cached[oldest];
      range = cached;
      size_t rest = bytes - released;
      if (rest >= kMinCachedBytes && rest < cached.bytes && cached.bytes - rest > kMinCachedBytes) {
        cached.bytes -= round_up(rest, large_granule());
        range = {end_of(cached), range.bytes - cached.bytes, nullptr, range.freed_ms};
      } else {
        erase_cached(oldest, 1);
      }
      count_cached(-range.bytes);
    }
    if (unmap_or_cache(range)) released += range.bytes;
  }
  return released;
}

// At a release rate of 0 nothing is unmapped while the table has room.
inline size_t cache_limit() {
  return release_rate() == 0 ? SIZE_MAX / 2 : option(Option::kHugeKeptMib) << 20;
}

inline bool worth_caching(size_t bytes) {
  return bytes <= cache_limit() && purge_decay_ms() != 0 && likely(!limit::pressed());
}

// False: the range is not worth caching.
bool cache(const CachedRange& range) {
  if (!worth_caching(range.bytes)) return false;
  size_t limit = cache_limit();
  size_t cached = mappings.cached_bytes.load(std::memory_order_relaxed);
  if (cached + range.bytes > limit) release_cached_bytes(cached + range.bytes - limit, UINT64_MAX);
  for (int turn = 0; turn < 2; ++turn) {
    {
      LockGuard guard(mappings.lock);
      if (insert_cached(range)) return true;
    }
    release_cached_bytes(1, UINT64_MAX);
  }
  return false;
}

Slab* exchange_last_freed(Slab* s) {
  if (!single_threaded()) return mappings.last_freed.exchange(s, std::memory_order_acq_rel);
  Slab* before = mappings.last_freed.load(std::memory_order_relaxed);
  mappings.last_freed.store(s, std::memory_order_relaxed);
  return before;
}

Slab* take_last_freed() {
  bool any = mappings.last_freed.load(std::memory_order_relaxed) != nullptr;
  return any ? exchange_last_freed(nullptr) : nullptr;
}

}  // namespace

constinit const LargeLayout large_layout = {.descriptors = static_cast<const void*>(&mappings.all),
                                            .cached = &mappings.cached,
                                            .cached_count = &mappings.cached_count,
                                            .reused_bytes = &mappings.reused_bytes,
                                            .last_freed = &mappings.last_freed,
                                            .most_cached = kMaxCachedMappings,
                                            .cached_bytes = sizeof(CachedRange),
                                            .cached_base = offsetof(CachedRange, base),
                                            .cached_length = offsetof(CachedRange, bytes)};

size_t large_granule() { return kPageBytes > os::page_size() ? kPageBytes : os::page_size(); }

void large_free_range(const CachedRange& range, bool may_cache) {
  if (!may_cache || !cache(range)) unmap_or_cache(range);
}

void large_free_mapping(Slab* s) {
  stats::add(stats::kHugeBytes, -int64_t(s->bytes));
  stats::add(stats::kHugeCount, -1);
  s->kind = Kind::kFree;
  large_free_range({s->base, s->bytes, s, os::now_ms()}, true);
}

Slab* large_take_cached(size_t bytes, size_t align) {
  LockGuard guard(mappings.lock);
  int best = -1;
  size_t best_bytes = SIZE_MAX;
  for (int i = 0; i < mappings.cached_count; ++i) {
    bool inside = i > 0 && end_of(mappings.cached[i - 1]) == mappings.cached[i].base;
    if ((inside && align <= kPageBytes) || (uintptr_t(mappings.cached[i].base) & (align - 1)) != 0)
      continue;
    size_t have = bytes_from(i, best_bytes);
    if (have < bytes || have >= best_bytes) continue;
    best = i;
    best_bytes = have;
  }
  if (best < 0) return nullptr;
  char* base = mappings.cached[best].base;
  Slab* s = page_map.make_tables(base, 1) ? new_descriptor() : nullptr;
  if (s == nullptr) return nullptr;
  s->base = base;
  s->bytes = consume(best, bytes);
  return s;
}

void large_make_room(size_t bytes) {
  auto in_use = size_t(stats::get(stats::kHugeBytes)) + bytes;
  auto peak = size_t(stats::get(stats::kHugePeakBytes));
  if (peak < in_use) peak = in_use;
  size_t total = in_use + large_cached_bytes(), most = peak / 2 * kMappedHalves;
  if (total > most && release_rate() != 0) release_cached_bytes(total - most, UINT64_MAX);
}

bool large_absorb(Slab* s, size_t more_bytes) {
  LockGuard guard(mappings.lock);
  for (int i = 0; i < mappings.cached_count; ++i) {
    if (mappings.cached[i].base != s->base + s->bytes) continue;
    if (bytes_from(i, more_bytes) < more_bytes) return false;
    s->bytes += consume(i, more_bytes);
    return true;
  }
  return false;
}

Slab* large_make_descriptor() {
  LockGuard guard(mappings.lock);
  Slab* s = new_descriptor();
  if (s != nullptr) s->offset = 0;
  return s;
}

bool large_cache_last_freed(Slab* s) {
  if (s->sample_point != nullptr || sample_all ||
      mappings.last_freed.load(std::memory_order_relaxed) != nullptr || !worth_caching(s->bytes))
    return false;
  s->kind = Kind::kFree;
  mappings.last_freed_bytes.store(s->bytes, std::memory_order_relaxed);
  if (Slab* before = exchange_last_freed(s)) large_free_mapping(before);
  return true;
}

bool large_last_freed_fits(size_t size_bytes) {
  size_t bytes = mappings.last_freed_bytes.load(std::memory_order_relaxed);
  return size_bytes <= bytes && bytes - size_bytes <= bytes / kLastFreedFitShare &&
         mappings.last_freed.load(std::memory_order_relaxed) != nullptr;
}

Slab* large_take_last_freed(size_t size_bytes) {
  Slab* s = take_last_freed();
  if (s == nullptr) return nullptr;
  if (large_usable(s) < size_bytes ||
      large_usable(s) - size_bytes > s->bytes / kLastFreedFitShare) {
    large_free_mapping(s);
    return nullptr;
  }
  s->kind = Kind::kHuge;
  return s;
}

void large_evict_last_freed() {
  if (Slab* s = take_last_freed()) large_free_mapping(s);
}

size_t large_release_cached(size_t bytes, uint64_t deadline_ms) {
  large_evict_last_freed();
  return large_cached_bytes() != 0 ? release_cached_bytes(bytes, deadline_ms) : 0;
}

bool large_has_cached() {
  return mappings.last_freed.load(std::memory_order_relaxed) != nullptr ||
         large_cached_bytes() != 0;
}

size_t large_used_bytes() {
  // Another thread may have taken the entry: its descriptor is not read.
  bool any = mappings.last_freed.load(std::memory_order_relaxed) != nullptr;
  size_t last_freed = any ? mappings.last_freed_bytes.load(std::memory_order_relaxed) : 0;
  auto handed_out = size_t(stats::get(stats::kHugeBytes));
  return handed_out > last_freed ? handed_out - last_freed : 0;
}

size_t large_cached_bytes() { return mappings.cached_bytes.load(std::memory_order_relaxed); }

void large_for_each(FunctionRef<void(const char*, size_t, size_t)> visit) {
  const Slab* s;
  {
    LockGuard guard(mappings.lock);
    s = mappings.all;
  }
  // Descriptors are never freed, and these links never change. Relaxed: figures of objects that
  // other threads may be freeing.
  for (; s != nullptr; s = s->prev) {
    auto* kind = reinterpret_cast<const uint8_t*>(&s->kind);
    if (Kind(__atomic_load_n(kind, __ATOMIC_RELAXED)) == Kind::kHuge)
      visit(__atomic_load_n(&s->base, __ATOMIC_RELAXED),
            __atomic_load_n(&s->bytes, __ATOMIC_RELAXED),
            __atomic_load_n(&s->offset, __ATOMIC_RELAXED));
  }
}

void large_for_each_cached(FunctionRef<void(const char*, size_t)> visit) {
  CachedRange cached[kMaxCachedMappings];
  int count;
  {
    LockGuard guard(mappings.lock);
    count = mappings.cached_count;
    memcpy(cached, mappings.cached, size_t(count) * sizeof(CachedRange));
  }
  for (int i = 0; i < count; ++i) visit(cached[i].base, cached[i].bytes);
}

// Relaxed: a figure.
uint64_t large_reused_bytes() { return __atomic_load_n(&mappings.reused_bytes, __ATOMIC_RELAXED); }

Lock& large_lock() { return mappings.lock; }

}  // namespace larder
