#include "core/large.h"

#include <string.h>

#include <new>
#include <utility>

#include "base/policy.h"
#include "base/stats.h"
#include "core/colour.h"
#include "core/limit.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "core/report.h"
#include "os/backing.h"
#include "os/lock.h"

namespace larder {

namespace {

// Of an emergency mapping: those of its descriptor and of the object's first byte.
size_t emergency_pages(const Slab* s) { return s->offset / kPageBytes + 1; }

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

// What `take` returns, which takes that many bytes from the system, or `refused`.
template <typename Take>
auto within_limits(size_t bytes, Take take, decltype(take()) refused) {
  if (likely(!limit::any())) return take();
  LockGuard guard(page_heap.lock());
  return limit::allows(bytes) ? take() : refused;
}

void* huge_alloc(size_t size_bytes, size_t align, bool* zero) {
  size_t bytes = round_up(size_bytes, large_granule());
  // Arrays of whole system pages alias. Room for a colour costs them a page.
  if (align <= 16 && bytes - size_bytes < kColourSpan) bytes += large_granule();
  size_t map_align = align > large_granule() ? align : large_granule();
  large_evict_last_freed();
  Slab* s = large_take_cached(bytes, map_align);
  *zero = s == nullptr;
  if (s == nullptr) {
    large_make_room(bytes);
    auto* base = static_cast<char*>(
        within_limits(bytes, [&] { return backing::map_aligned(bytes, map_align); }, nullptr));
    if (base == nullptr) return nullptr;
    if (page_map.make_tables(base, 1)) s = large_make_descriptor();
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

// In place, or by moving system pages. kNoRoom: fewer bytes may fit.
os::Resized huge_grow(Slab* s, size_t bytes) {
  auto grow = [&] {
    os::Resized resized = backing::resize_in_place(s->base, s->bytes, bytes);
    return resized == os::Resized::kNoRoom && huge_move(s, bytes) ? os::Resized::kDone : resized;
  };
  os::Resized resized = within_limits(bytes - s->bytes, grow, os::Resized::kNoRoom);
  if (resized == os::Resized::kDone) s->bytes = bytes;
  return resized;
}

void* huge_resize(Slab* s, size_t new_bytes) {
  size_t need = round_up(new_bytes + s->offset, large_granule());
  size_t old = s->bytes;
  if (need <= old) {
    if (old - need > old / kTailShare) {  // a small tail stays: the object may grow again
      s->bytes = need;
      large_free_range({s->base + need, old - need, nullptr, os::now_ms()}, true);
      count_huge(int64_t(need) - int64_t(old));
    }
    return s->object();
  }
  bool grown = large_absorb(s, need - old);
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
      large_free_mapping(s);
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
  large_free_range(left, false);
  count_huge(int64_t(bytes - old));
  return s->object();
}

void* large_reuse(Slab* s, size_t size_bytes) {
  s->offset = next_colour(s->bytes - size_bytes);
  return s->object();
}

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
