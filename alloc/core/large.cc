#include "core/large.h"

#include <string.h>

#include <new>
#include <utility>

#include "base/layout.h"
#include "base/policy.h"
#include "base/stats.h"
#include "core/colour.h"
#include "core/limit.h"
#include "core/meta.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "core/report.h"
#include "core/sampler.h"
#include "os/backing.h"
#include "os/lock.h"

namespace larder {

namespace {

// Of an emergency mapping: those of its descriptor and of the object's first byte.
size_t emergency_pages(const Slab* s) { return s->offset / kPageBytes + 1; }

// A mapped range without an object. Adjacent ranges together serve one object, from the low end.
struct CachedRange {
  char* base;  // a multiple of large_granule(), as `bytes` is
  size_t bytes;
  Slab* slab;  // of the object that began here, or nullptr
  uint64_t freed_ms;
};

struct Huge {
  Lock lock;
  Slab* descriptors LARDER_GUARDED_BY(lock) = nullptr;  // unused ones, by next
  Slab* all LARDER_GUARDED_BY(lock) = nullptr;          // used and unused ones, by prev
  CachedRange cached[kMaxCachedMappings] LARDER_GUARDED_BY(lock) = {};  // by address
  int cached_count LARDER_GUARDED_BY(lock) = 0;
  // Relaxed where read without the lock: hints, which a caller that acts on them reads again.
  std::atomic<size_t> cached_bytes{0};
  std::atomic<Slab*> last_freed{nullptr};             // counts as in use
  std::atomic<size_t> last_freed_bytes{0};            // of the last entry
  uint64_t reused_bytes LARDER_GUARDED_BY(lock) = 0;  // of cached mappings, since the start
};
constinit Huge huge;

Slab* new_descriptor() LARDER_REQUIRES(huge.lock) {
  if (Slab* s = huge.descriptors) {
    huge.descriptors = s->next;
    return s;
  }
  void* memory = meta_alloc(sizeof(Slab), alignof(Slab));
  if (memory == nullptr) return nullptr;
  auto* s = new (memory) Slab;
  s->prev = huge.all;
  return huge.all = s;
}

void drop_descriptor(Slab* s) LARDER_REQUIRES(huge.lock) {
  if (s == nullptr) return;
  page_map.set(s->base, 1, nullptr);
  s->kind = Kind::kFree;
  s->next = huge.descriptors;
  huge.descriptors = s;
}

// No read-modify-write: the lock is held.
void count_cached(size_t bytes) LARDER_REQUIRES(huge.lock) {
  huge.cached_bytes.store(huge.cached_bytes.load(std::memory_order_relaxed) + bytes,
                          std::memory_order_relaxed);
}

char* end_of(const CachedRange& range) { return range.base + range.bytes; }

void erase_cached(int first, int count) LARDER_REQUIRES(huge.lock) {
  huge.cached_count -= count;
  memmove(&huge.cached[first], &huge.cached[first + count],
          size_t(huge.cached_count - first) * sizeof(CachedRange));
}

// False: the table is full.
bool insert_cached(const CachedRange& range) LARDER_REQUIRES(huge.lock) {
  if (huge.cached_count == kMaxCachedMappings) return false;
  int at = huge.cached_count++;
  for (; at > 0 && huge.cached[at - 1].base > range.base; --at)
    huge.cached[at] = huge.cached[at - 1];
  huge.cached[at] = range;
  count_cached(range.bytes);
  return true;
}

// munmap may refuse (too many mappings). Then the range is discarded and cached.
bool unmap_or_cache(CachedRange range) {
  {
    LockGuard guard(huge.lock);
    drop_descriptor(range.slab);
  }
  if (backing::unmap(range.base, range.bytes)) return true;
  backing::discard(range.base, range.bytes);
  range.slab = nullptr;
  range.freed_ms = os::now_ms();
  LockGuard guard(huge.lock);
  insert_cached(range);
  return false;
}

// Bytes of the adjacent ranges from cached[i] on, until at least `enough`.
size_t bytes_from(int i, size_t enough) LARDER_REQUIRES(huge.lock) {
  size_t bytes = huge.cached[i].bytes;
  for (; bytes < enough && i + 1 < huge.cached_count; ++i) {
    if (end_of(huge.cached[i]) != huge.cached[i + 1].base) break;
    bytes += huge.cached[i + 1].bytes;
  }
  return bytes;
}

// Takes `bytes`, or a little more, from cached[i] on. Returns the bytes taken.
// REQUIRES: bytes_from(i, bytes) >= bytes
size_t consume(int i, size_t bytes) LARDER_REQUIRES(huge.lock) {
  size_t taken = 0;
  int whole = 0;
  for (CachedRange* range = &huge.cached[i]; taken < bytes; ++range) {
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
  huge.reused_bytes += taken;
  return taken;
}

// A descriptor with base and bytes, from the smallest cached ranges that fit; or nullptr.
Slab* reuse_cached(size_t bytes, size_t align) {
  LockGuard guard(huge.lock);
  int best = -1;
  size_t best_bytes = SIZE_MAX;
  for (int i = 0; i < huge.cached_count; ++i) {
    bool inside = i > 0 && end_of(huge.cached[i - 1]) == huge.cached[i].base;
    if ((inside && align <= kPageBytes) || (uintptr_t(huge.cached[i].base) & (align - 1)) != 0)
      continue;
    size_t have = bytes_from(i, best_bytes);
    if (have < bytes || have >= best_bytes) continue;
    best = i;
    best_bytes = have;
  }
  if (best < 0) return nullptr;
  char* base = huge.cached[best].base;
  Slab* s = page_map.make_tables(base, 1) ? new_descriptor() : nullptr;
  if (s == nullptr) return nullptr;
  s->base = base;
  s->bytes = consume(best, bytes);
  return s;
}

// Unmaps cached ranges, oldest first, until `bytes` are released.
size_t release_cached_bytes(size_t bytes, uint64_t deadline_ms) {
  size_t released = 0;
  // A refused munmap puts its range back: the iterations are bounded.
  for (int turn = 0; turn < kMaxCachedMappings && released < bytes; ++turn) {
    CachedRange range;
    {
      LockGuard guard(huge.lock);
      int oldest = -1;
      for (int i = 0; i < huge.cached_count; ++i)
        if (huge.cached[i].freed_ms <= deadline_ms &&
            (oldest < 0 || huge.cached[i].freed_ms < huge.cached[oldest].freed_ms))
          oldest = i;
      if (oldest < 0) break;
      range = huge.cached[oldest];
      erase_cached(oldest, 1);
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
  size_t cached = huge.cached_bytes.load(std::memory_order_relaxed);
  if (cached + range.bytes > limit) release_cached_bytes(cached + range.bytes - limit, UINT64_MAX);
  for (int turn = 0; turn < 2; ++turn) {
    {
      LockGuard guard(huge.lock);
      if (insert_cached(range)) return true;
    }
    release_cached_bytes(1, UINT64_MAX);
  }
  return false;
}

void count_huge(int64_t bytes) {
  stats::add(stats::kHugeBytes, bytes);
  stats::raise(stats::kHugePeakBytes, stats::get(stats::kHugeBytes));
}

// Moves the mapping to an address where `bytes` fit.
bool huge_move(Slab* s, size_t bytes) {
  size_t system_page = os::page_size();
  // mremap moves only what came from mmap.
  auto* target = static_cast<char*>(
      os::map_aligned(bytes, kPageBytes > system_page ? kPageBytes : system_page));
  if (target == nullptr) return false;
  // The old entry first: after the move another owner may map its address.
  page_map.set(s->base, 1, nullptr);
  bool tables = page_map.make_tables(target, 1);
  if (!tables || !os::move_pages(s->base, s->bytes, target, bytes)) {
    page_map.set(s->base, 1, s);
    // After a failed move another owner may have mapped the target. It is left: address space, not
    // memory.
    if (!tables) os::unmap(target, bytes);
    return false;
  }
  s->base = target;
  page_map.set(target, 1, s);
  return true;
}

// REQUIRES: no thread can reach s.
void huge_free(Slab* s) {
  stats::add(stats::kHugeBytes, -int64_t(s->bytes));
  stats::add(stats::kHugeCount, -1);
  s->kind = Kind::kFree;
  CachedRange range = {s->base, s->bytes, s, os::now_ms()};
  if (!cache(range)) unmap_or_cache(range);
}

Slab* exchange_last_freed(Slab* s) {
  if (!single_threaded()) return huge.last_freed.exchange(s, std::memory_order_acq_rel);
  Slab* before = huge.last_freed.load(std::memory_order_relaxed);
  huge.last_freed.store(s, std::memory_order_relaxed);
  return before;
}

Slab* take_last_freed() {
  bool any = huge.last_freed.load(std::memory_order_relaxed) != nullptr;
  return any ? exchange_last_freed(nullptr) : nullptr;
}

// Before `bytes` are mapped: keeps the bound of large.h.
void make_room(size_t bytes) {
  auto in_use = size_t(stats::get(stats::kHugeBytes)) + bytes;
  auto peak = size_t(stats::get(stats::kHugePeakBytes));
  if (peak < in_use) peak = in_use;
  size_t total = in_use + large_cached_bytes(), most = peak / 2 * kMappedHalves;
  if (total > most && release_rate() != 0) release_cached_bytes(total - most, UINT64_MAX);
}

void* map_within_limits(size_t bytes, size_t align) {
  if (likely(!limit::any())) return backing::map_aligned(bytes, align);
  LockGuard guard(page_heap.lock());
  return limit::allows(bytes) ? backing::map_aligned(bytes, align) : nullptr;
}

void* huge_alloc(size_t size_bytes, size_t align, bool* zero) {
  size_t bytes = round_up(size_bytes, large_granule());
  // Arrays of whole system pages alias. Room for a colour costs them a page.
  if (align <= 16 && bytes - size_bytes < kColourSpan) bytes += large_granule();
  size_t map_align = align > large_granule() ? align : large_granule();
  large_evict_last_freed();
  Slab* s = reuse_cached(bytes, map_align);
  *zero = s == nullptr;
  if (s == nullptr) {
    make_room(bytes);
    auto* base = static_cast<char*>(map_within_limits(bytes, map_align));
    if (base == nullptr) return nullptr;
    if (page_map.make_tables(base, 1)) {
      LockGuard guard(huge.lock);
      s = new_descriptor();
    }
    if (s == nullptr) {
      backing::unmap(base, bytes);
      return nullptr;
    }
    s->base = base;
    s->bytes = bytes;
  }
  s->kind = Kind::kHuge;
  s->set_owner(kUnowned);
  s->pages = 1;
  s->offset = align > 16 ? 0 : next_colour(s->bytes - size_bytes);
  page_map.set(s->base, 1, s);
  count_huge(int64_t(s->bytes));
  stats::add(stats::kHugeCount, 1);
  return s->object();
}

// Grows the object into cached ranges right behind it.
bool absorb(Slab* s, size_t more_bytes) {
  LockGuard guard(huge.lock);
  for (int i = 0; i < huge.cached_count; ++i) {
    if (huge.cached[i].base != s->base + s->bytes) continue;
    if (bytes_from(i, more_bytes) < more_bytes) return false;
    s->bytes += consume(i, more_bytes);
    return true;
  }
  return false;
}

os::Resized grow_now(Slab* s, size_t bytes) {
  os::Resized resized = backing::resize_in_place(s->base, s->bytes, bytes);
  if (resized == os::Resized::kNoRoom && huge_move(s, bytes)) resized = os::Resized::kDone;
  if (resized == os::Resized::kDone) s->bytes = bytes;
  return resized;
}

// In place, or by moving system pages. kNoRoom: fewer bytes may fit.
os::Resized huge_grow(Slab* s, size_t bytes) {
  if (likely(!limit::any())) return grow_now(s, bytes);
  LockGuard guard(page_heap.lock());
  return limit::allows(bytes - s->bytes) ? grow_now(s, bytes) : os::Resized::kNoRoom;
}

void* huge_resize(Slab* s, size_t new_bytes) {
  size_t need = round_up(new_bytes + s->offset, large_granule());
  size_t old = s->bytes;
  if (need <= old) {
    if (old - need > old / kTailShare) {  // a small tail stays: the object may grow again
      CachedRange tail = {s->base + need, old - need, nullptr, os::now_ms()};
      s->bytes = need;
      if (!cache(tail)) unmap_or_cache(tail);
      count_huge(int64_t(need) - int64_t(old));
    }
    return s->object();
  }
  bool grown = absorb(s, need - old);
  // Objects that grow tend to grow again. One part in kGrowShare more address space, which is
  // untouched and so costs no memory, makes growth by small steps cost O(log size) system calls.
  for (size_t bytes : {round_up(need + need / kGrowShare, large_granule()), need}) {
    if (grown) break;
    if (bytes < need || bytes > kMaxSize) continue;
    os::Resized resized = huge_grow(s, bytes);
    if (resized == os::Resized::kRefused) return nullptr;
    grown = resized == os::Resized::kDone;
  }
  if (!grown) return nullptr;
  count_huge(int64_t(s->bytes) - int64_t(old));
  return s->object();
}

void* span_alloc(size_t size_bytes, size_t align, bool* zero) {
  auto align_pages = unsigned(align > kPageBytes ? align / kPageBytes : 1);
  Slab* s = page_heap.alloc_span(span_pages(size_bytes), align_pages, Kind::kSpan);
  if (s == nullptr) return nullptr;
  if (align <= 16) s->offset = next_colour(s->bytes - size_bytes);
  *zero = s->zero;
  return s->object();
}

void* span_resize(Slab* s, void* object, size_t new_bytes) {
  unsigned pages = span_pages(new_bytes + s->offset);
  if (pages < s->pages)
    page_heap.shrink_span(s, pages);
  else if (pages > s->pages && !page_heap.extend_span(s, pages))
    return nullptr;
  return object;
}

}  // namespace

constinit const LargeLayout large_layout = {.descriptors = static_cast<const void*>(&huge.all),
                                            .cached = &huge.cached,
                                            .cached_count = &huge.cached_count,
                                            .reused_bytes = &huge.reused_bytes,
                                            .last_freed = &huge.last_freed,
                                            .most_cached = kMaxCachedMappings,
                                            .cached_bytes = sizeof(CachedRange),
                                            .cached_base = offsetof(CachedRange, base),
                                            .cached_length = offsetof(CachedRange, bytes)};

size_t large_granule() { return kPageBytes > os::page_size() ? kPageBytes : os::page_size(); }

void* large_alloc(size_t size_bytes, size_t align, bool* zero) {
  if (size_bytes > kMaxSize - align) return nullptr;
  if (size_bytes == 0) size_bytes = 1;
  void* p = size_bytes > kSpanMax || align > kSegmentBytes ? huge_alloc(size_bytes, align, zero)
                                                           : span_alloc(size_bytes, align, zero);
  if (likely(p != nullptr)) report_if_large(p, size_bytes);
  return p;
}

void large_free(Slab* s) {
  switch (s->kind) {
    case Kind::kSpan:
      page_heap.free_span(s, s->bytes);
      break;
    case Kind::kHuge:
      huge_free(s);
      break;
    default: {
      // An emergency mapping. Its descriptor lies in it.
      char* base = s->base;
      size_t bytes = s->bytes;
      page_map.set(base, emergency_pages(s), nullptr);
      os::unmap(base, bytes);
      break;
    }
  }
}

void* large_resize(Slab* s, void* object, size_t new_bytes) {
  if (new_bytes > kMaxSize) return nullptr;
  switch (s->kind) {
    case Kind::kSpan:
      return new_bytes > kSmallMax && new_bytes + s->offset <= kSpanMax
                 ? span_resize(s, object, new_bytes)
                 : nullptr;
    case Kind::kHuge:
      return new_bytes > kSpanMax ? huge_resize(s, new_bytes) : nullptr;
    default:
      return nullptr;
  }
}

void* large_move_by_pieces(Slab* s, size_t new_bytes) {
  if (s->kind != Kind::kHuge || new_bytes > kMaxSize - s->offset) return nullptr;
  size_t bytes = round_up(new_bytes + s->offset, large_granule()), old = s->bytes;
  {
    LockGuard guard(page_heap.lock());
    if (bytes <= old || !limit::allows(bytes - old)) return nullptr;
  }
  auto* target = static_cast<char*>(backing::map_aligned(bytes, large_granule()));
  if (target == nullptr) return nullptr;
  if (!page_map.make_tables(target, 1)) {
    backing::unmap(target, bytes);
    return nullptr;
  }
  for (size_t at = 0; at < old; at += kMovedPieceBytes) {
    size_t piece = old - at < kMovedPieceBytes ? old - at : kMovedPieceBytes;
    memcpy(target + at, s->base + at, piece);
    backing::discard(s->base + at, piece);
  }
  page_map.set(s->base, 1, nullptr);
  CachedRange left = {s->base, old, nullptr, 0};
  s->base = target;
  s->bytes = bytes;
  page_map.set(target, 1, s);
  unmap_or_cache(left);
  count_huge(int64_t(bytes - old));
  return s->object();
}

Slab* large_make_descriptor() {
  LockGuard guard(huge.lock);
  Slab* s = new_descriptor();
  if (s != nullptr) s->offset = 0;
  return s;
}

void* large_reuse(Slab* s, size_t size_bytes) {
  s->offset = next_colour(s->bytes - size_bytes);
  return s->object();
}

bool large_cache_last_freed(Slab* s) {
  if (s->sample_point != nullptr || sample_all ||
      huge.last_freed.load(std::memory_order_relaxed) != nullptr || !worth_caching(s->bytes))
    return false;
  s->kind = Kind::kFree;
  huge.last_freed_bytes.store(s->bytes, std::memory_order_relaxed);
  if (Slab* before = exchange_last_freed(s)) huge_free(before);
  return true;
}

bool large_last_freed_fits(size_t size_bytes) {
  size_t bytes = huge.last_freed_bytes.load(std::memory_order_relaxed);
  return size_bytes <= bytes && bytes - size_bytes <= bytes / kLastFreedFitShare &&
         huge.last_freed.load(std::memory_order_relaxed) != nullptr;
}

Slab* large_take_last_freed(size_t size_bytes) {
  Slab* s = take_last_freed();
  if (s == nullptr) return nullptr;
  if (large_usable(s) < size_bytes ||
      large_usable(s) - size_bytes > s->bytes / kLastFreedFitShare) {
    huge_free(s);
    return nullptr;
  }
  s->kind = Kind::kHuge;
  return s;
}

void large_evict_last_freed() {
  if (Slab* s = take_last_freed()) huge_free(s);
}

size_t large_release_cached(uint64_t deadline_ms) {
  large_evict_last_freed();
  return large_cached_bytes() != 0 ? release_cached_bytes(SIZE_MAX, deadline_ms) : 0;
}

bool large_has_cached() {
  return huge.last_freed.load(std::memory_order_relaxed) != nullptr || large_cached_bytes() != 0;
}

size_t large_used_bytes() {
  // Another thread may have taken the entry: its descriptor is not read.
  bool any = huge.last_freed.load(std::memory_order_relaxed) != nullptr;
  size_t last_freed = any ? huge.last_freed_bytes.load(std::memory_order_relaxed) : 0;
  auto handed_out = size_t(stats::get(stats::kHugeBytes));
  return handed_out > last_freed ? handed_out - last_freed : 0;
}

size_t large_cached_bytes() { return huge.cached_bytes.load(std::memory_order_relaxed); }

void large_for_each(FunctionRef<void(const char*, size_t, size_t)> visit) {
  const Slab* s;
  {
    LockGuard guard(huge.lock);
    s = huge.all;
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
    LockGuard guard(huge.lock);
    count = huge.cached_count;
    memcpy(cached, huge.cached, size_t(count) * sizeof(CachedRange));
  }
  for (int i = 0; i < count; ++i) visit(cached[i].base, cached[i].bytes);
}

// Relaxed: a figure.
uint64_t large_reused_bytes() { return __atomic_load_n(&huge.reused_bytes, __ATOMIC_RELAXED); }

Lock& large_lock() { return huge.lock; }

void* emergency_alloc(size_t size_bytes, size_t align) {
  if (size_bytes == 0) size_bytes = 1;
  constexpr size_t kMaxAlign = size_t{1} << 30;  // the offset has 32 bits
  if (align > kMaxAlign || size_bytes > kMaxSize - 2 * kPageBytes - align) return nullptr;
  // The descriptor has the first system page to itself: no other place is reachable without a lock.
  size_t system_page = os::page_size();
  size_t offset = round_up(sizeof(Slab) > system_page ? sizeof(Slab) : system_page, align);
  size_t bytes = round_up(round_up(size_bytes + offset, kPageBytes), system_page);
  size_t map_align = align > kPageBytes         ? align
                     : kPageBytes > system_page ? kPageBytes
                                                : system_page;
  char* base = static_cast<char*>(os::map_aligned(bytes, map_align));
  if (base == nullptr) return nullptr;
  if (!page_map.make_tables(base, offset / kPageBytes + 1)) {
    os::unmap(base, bytes);
    return nullptr;
  }
  auto* s = new (base) Slab;
  s->kind = Kind::kEmergency;
  s->base = base;
  s->bytes = bytes;
  s->offset = uint32_t(offset);
  page_map.set(base, emergency_pages(s), s);
  stats::add(stats::kEmergencyMappings, 1);
  return base + offset;
}

}  // namespace larder
