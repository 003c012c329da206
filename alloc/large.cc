#include "large.h"

#include <new>

#include "colour.h"
#include "lock.h"
#include "meta.h"
#include "page_heap.h"
#include "page_map.h"
#include "stats.h"

namespace larder {

namespace {

constexpr int kKept = 16;
// Mappings from here on are reused only where they fit closely.
constexpr size_t kCloseFitMin = 32 * 1024 * 1024;

struct Kept {
  Slab* slab;
  uint64_t freed_ms;
};

struct Huge {
  Lock lock;
  Slab* descriptors = nullptr;  // unused ones, by next
  Kept kept[kKept] = {};
  int kept_count = 0;
  std::atomic<size_t> kept_bytes{0};
};
constinit Huge huge;

Slab* new_descriptor() {
  {
    LockGuard guard(huge.lock);
    if (Slab* s = huge.descriptors) {
      huge.descriptors = s->next;
      return s;
    }
  }
  void* memory = meta_alloc(sizeof(Slab), alignof(Slab));
  return memory == nullptr ? nullptr : new (memory) Slab;
}

// REQUIRES: huge.lock
void drop_descriptor(Slab* s) {
  s->kind = Kind::kFree;
  s->next = huge.descriptors;
  huge.descriptors = s;
}

// REQUIRES: huge.lock, so that no read-modify-write is needed.
void count_kept(int64_t bytes) {
  huge.kept_bytes.store(huge.kept_bytes.load(std::memory_order_relaxed) + size_t(bytes),
                        std::memory_order_relaxed);
}

// REQUIRES: huge.lock
Slab* take_kept(int i) {
  Slab* s = huge.kept[i].slab;
  huge.kept[i] = huge.kept[--huge.kept_count];
  count_kept(-int64_t(s->bytes));
  return s;
}

// A refused munmap (too many mappings) keeps the memory: it is discarded and kept for reuse.
bool unmap_or_keep(Slab* s) {
  page_map.set(s->base, 1, nullptr);
  bool gone = os::unmap(s->base, s->bytes);
  if (!gone) os::discard(s->base, s->bytes);
  LockGuard guard(huge.lock);
  if (gone) {
    drop_descriptor(s);
  } else if (huge.kept_count < kKept) {
    huge.kept[huge.kept_count++] = {s, os::now_ms()};
    count_kept(int64_t(s->bytes));
  }
  return gone;
}

// The smallest kept mapping that fits without wasting more than a fifth; of the smaller ones, which
// come and go more often, a half.
Slab* reuse_kept(size_t bytes, size_t align) {
  LockGuard guard(huge.lock);
  int best = -1;
  for (int i = 0; i < huge.kept_count; ++i) {
    const Slab* s = huge.kept[i].slab;
    size_t waste = bytes < kCloseFitMin ? s->bytes / 2 : s->bytes / 5;
    bool fits =
        s->bytes >= bytes && s->bytes - bytes <= waste && (uintptr_t(s->base) & (align - 1)) == 0;
    if (fits && (best < 0 || s->bytes < huge.kept[best].slab->bytes)) best = i;
  }
  return best < 0 ? nullptr : take_kept(best);
}

// Unmaps kept mappings, oldest first, until `bytes` have gone.
size_t release_kept_bytes(size_t bytes, uint64_t deadline_ms) {
  size_t released = 0;
  // A mapping that the system would not take comes back to the list: bounded turns.
  for (int turn = 0; turn < kKept && released < bytes; ++turn) {
    Slab* s = nullptr;
    {
      LockGuard guard(huge.lock);
      int oldest = -1;
      for (int i = 0; i < huge.kept_count; ++i)
        if (huge.kept[i].freed_ms <= deadline_ms &&
            (oldest < 0 || huge.kept[i].freed_ms < huge.kept[oldest].freed_ms))
          oldest = i;
      if (oldest < 0) break;
      s = take_kept(oldest);
    }
    size_t bytes_of_it = s->bytes;
    if (unmap_or_keep(s)) released += bytes_of_it;
  }
  return released;
}

void count_huge(int64_t bytes) {
  stats::add(stats::kHugeBytes, bytes);
  stats::raise(stats::kHugePeakBytes, stats::get(stats::kHugeBytes));
}

// Moves the mapping to a place where `bytes` fit.
bool huge_move(Slab* s, size_t bytes) {
  size_t page = os::page_size();
  auto* target = static_cast<char*>(os::map_aligned(bytes, kUnit > page ? kUnit : page));
  if (target == nullptr) return false;
  // The old entry goes first: from the moment of the move its address may be anybody's.
  page_map.set(s->base, 1, nullptr);
  bool tables = page_map.make_tables(target, 1);
  if (!tables || !os::move_pages(s->base, s->bytes, target, bytes)) {
    page_map.set(s->base, 1, s);
    // After a failed move the target may be anybody's: leave it. That is address space, not memory.
    if (!tables) os::unmap(target, bytes);
    return false;
  }
  s->base = target;
  page_map.set(target, 1, s);
  return true;
}

void* huge_alloc(size_t size_bytes, size_t align, bool* zero) {
  size_t page = os::page_size();
  // The first unit must be all ours: the page map resolves by units.
  size_t bytes = size_bytes < kUnit ? round_up(kUnit, page) : round_up(size_bytes, page);
  // Arrays of whole pages are those that alias: room for a colour costs them a page.
  if (align <= 16 && bytes - size_bytes < kColourSpan) bytes += round_up(kColourSpan, page);
  size_t map_align = align > kUnit ? align : kUnit > page ? kUnit : page;
  Slab* s = reuse_kept(bytes, map_align);
  *zero = s == nullptr;
  if (s == nullptr) {
    if (large_kept_bytes() != 0) release_kept_bytes(bytes, UINT64_MAX);
    s = new_descriptor();
    if (s == nullptr) return nullptr;
    s->base = static_cast<char*>(os::map_aligned(bytes, map_align));
    if (s->base == nullptr || !page_map.make_tables(s->base, 1)) {
      if (s->base != nullptr) os::unmap(s->base, bytes);
      LockGuard guard(huge.lock);
      drop_descriptor(s);
      return nullptr;
    }
    s->bytes = bytes;
  }
  s->kind = Kind::kHuge;
  s->set_owner(kNobody);
  s->units = 1;
  s->zero = *zero;
  s->offset = align > 16 ? 0 : next_colour(s->bytes - size_bytes);
  page_map.set(s->base, 1, s);
  count_huge(int64_t(s->bytes));
  stats::add(stats::kHugeCount, 1);
  return s->base + s->offset;
}

void huge_free(Slab* s) {
  stats::add(stats::kHugeBytes, -int64_t(s->bytes));
  stats::add(stats::kHugeCount, -1);
  size_t limit = option(Option::kHugeKeptMib) << 20;
  bool keep = s->bytes <= limit && option(Option::kPurgeDecayMs) != 0;
  if (keep) {
    size_t kept = large_kept_bytes();
    if (kept + s->bytes > limit) release_kept_bytes(kept + s->bytes - limit, UINT64_MAX);
    uint64_t now = os::now_ms();
    huge.lock.acquire();
    if (huge.kept_count == kKept) {
      huge.lock.release();
      release_kept_bytes(1, UINT64_MAX);
      huge.lock.acquire();
    }
    keep = huge.kept_count < kKept;
    if (keep) {
      s->kind = Kind::kFree;
      huge.kept[huge.kept_count++] = {s, now};
      count_kept(int64_t(s->bytes));
    }
    huge.lock.release();
  }
  if (!keep) unmap_or_keep(s);
}

void* huge_resize(Slab* s, size_t new_bytes) {
  size_t page = os::page_size();
  size_t need = round_up(new_bytes + s->offset, page);
  size_t old = s->bytes;
  if (need <= old) {
    // Only tails worth a system call go back.
    if (old - need > old / 4 && os::resize_in_place(s->base, old, need) == os::Resized::kDone) {
      s->bytes = need;
      count_huge(int64_t(need) - int64_t(old));
    }
    return s->base + s->offset;
  }
  // Growth tends to go on: ask for an eighth more of address space (untouched, so no memory), so
  // that growing by small steps costs O(log size) system calls.
  for (size_t bytes : {round_up(need + need / 8, page), need}) {
    if (bytes < need || bytes > kMaxSize) continue;
    os::Resized resized = os::resize_in_place(s->base, old, bytes);
    if (resized == os::Resized::kRefused) return nullptr;
    if (resized == os::Resized::kDone || huge_move(s, bytes)) {
      s->bytes = bytes;
      s->zero = false;
      count_huge(int64_t(bytes) - int64_t(old));
      return s->base + s->offset;
    }
  }
  return nullptr;
}

void* run_alloc(size_t size_bytes, size_t align, bool* zero) {
  auto align_units = unsigned(align > kUnit ? align / kUnit : 1);
  Slab* s = page_heap.alloc_run(run_units(size_bytes), align_units, Kind::kRun);
  if (s == nullptr) return nullptr;
  if (align <= 16) s->offset = next_colour(s->bytes - size_bytes);
  *zero = s->zero;
  return s->base + s->offset;
}

void* blocks_alloc(size_t size_bytes, size_t align, bool* zero) {
  size_t room = align <= 16 ? kColourSpan : 0;
  Slab* s = page_heap.alloc_blocks(unsigned((size_bytes + room + kBlock - 1) / kBlock));
  if (s == nullptr) return nullptr;
  if (align <= 16) s->offset = next_colour(s->bytes - size_bytes);
  *zero = s->zero;
  return s->base + s->offset;
}

void* run_resize(Slab* s, void* object, size_t new_bytes) {
  unsigned units = run_units(new_bytes + s->offset);
  if (units < s->units)
    page_heap.shrink_run(s, units);
  else if (units > s->units && !page_heap.extend_run(s, units))
    return nullptr;
  return object;
}

}  // namespace

void* large_alloc(size_t size_bytes, size_t align, bool* zero) {
  if (size_bytes > kMaxSize - align) return nullptr;
  if (size_bytes == 0) size_bytes = 1;
  if (size_bytes >= kHugeMin || align > kBlock) return huge_alloc(size_bytes, align, zero);
  return size_bytes <= kRunMax ? run_alloc(size_bytes, align, zero)
                               : blocks_alloc(size_bytes, align, zero);
}

void large_free(Slab* s) {
  switch (s->kind) {
    case Kind::kRun:
      page_heap.free_run(s, s->bytes);
      break;
    case Kind::kLarge:
      page_heap.free_blocks(s);
      break;
    case Kind::kHuge:
      huge_free(s);
      break;
    default: {
      // An emergency block: its descriptor goes with it.
      char* base = s->base;
      size_t bytes = s->bytes;
      page_map.set(base, s->units, nullptr);
      os::unmap(base, bytes);
      break;
    }
  }
}

void* large_resize(Slab* s, void* object, size_t new_bytes) {
  if (new_bytes > kMaxSize) return nullptr;
  switch (s->kind) {
    case Kind::kRun:
      return new_bytes > kSmallMax && new_bytes + s->offset <= kRunMax
                 ? run_resize(s, object, new_bytes)
                 : nullptr;
    case Kind::kLarge:
      return new_bytes > kRunMax && new_bytes <= large_usable(s) ? object : nullptr;
    case Kind::kHuge:
      return new_bytes > kRunMax ? huge_resize(s, new_bytes) : nullptr;
    default:
      return nullptr;
  }
}

void* large_reuse(Slab* s, size_t size_bytes) {
  s->offset = next_colour(s->bytes - size_bytes);
  s->zero = false;
  return s->base + s->offset;
}

size_t large_release_kept(uint64_t deadline_ms) {
  return large_kept_bytes() != 0 ? release_kept_bytes(SIZE_MAX, deadline_ms) : 0;
}

size_t large_kept_bytes() { return huge.kept_bytes.load(std::memory_order_relaxed); }

Lock& large_lock() { return huge.lock; }

void* emergency_alloc(size_t size_bytes, size_t align) {
  if (size_bytes == 0) size_bytes = 1;
  constexpr size_t kMaxAlign = size_t{1} << 30;  // the offset has 32 bits
  if (align > kMaxAlign || size_bytes > kMaxSize - 2 * kUnit - align) return nullptr;
  // The descriptor has the first page to itself: there is no other place without a lock.
  size_t page = os::page_size();
  size_t offset = round_up(sizeof(Slab) > page ? sizeof(Slab) : page, align);
  size_t bytes = round_up(round_up(size_bytes + offset, kUnit), page);
  size_t map_align = align > kUnit ? align : kUnit > page ? kUnit : page;
  char* base = static_cast<char*>(os::map_aligned(bytes, map_align));
  if (base == nullptr) return nullptr;
  size_t first_units = offset / kUnit + 1;
  if (!page_map.make_tables(base, first_units)) {
    os::unmap(base, bytes);
    return nullptr;
  }
  auto* s = new (base) Slab;
  s->kind = Kind::kEmergency;
  s->base = base;
  s->bytes = bytes;
  s->offset = uint32_t(offset);
  s->units = uint32_t(first_units);
  page_map.set(base, first_units, s);
  stats::add(stats::kEmergencyBlocks, 1);
  return base + offset;
}

}  // namespace larder
