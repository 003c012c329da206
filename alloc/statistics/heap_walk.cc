#include "statistics/heap_walk.h"

#include "base/stats.h"
#include "core/free_memory.h"
#include "core/guard.h"
#include "core/large.h"
#include "core/meta.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "core/source.h"
#include "sample/site.h"

namespace larder {

namespace {

// Relaxed: other threads write what is read here, and a torn view costs accuracy alone.
template <typename T>
T peek(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

size_t less(size_t a, size_t b) { return a < b ? a : b; }

// Which system pages are resident, queried for a window of 2 MiB at a time.
class Residency {
 public:
  explicit Residency(bool asked) : asked_(asked) {
    const char* here = reinterpret_cast<const char*>(this);
    unsigned char any;
    refused_ =
        asked && !os::resident(here - uintptr_t(here) % os::page_size(), os::page_size(), &any);
  }
  bool known() const { return asked_ && !refused_; }
  // Queries the whole window, of which the caller will ask for parts.
  void expect(const char* window) {
    if (asked_) query(window, window, window + kSegmentBytes);
  }
  // Resident bytes of [from, to).
  size_t resident(const char* from, const char* to) {
    size_t bytes = 0;
    while (asked_ && from < to) {
      const char* window = from - uintptr_t(from) % kSegmentBytes;
      const char* end = window + kSegmentBytes < to ? window + kSegmentBytes : to;
      query(window, from, end);
      bytes += count(window, from, end);
      from = end;
    }
    return bytes;
  }

 private:
  // The window outside of the range need not be mapped.
  void query(const char* window, const char* from, const char* end) {
    if (window == window_ && from >= from_ && end <= end_) return;
    const size_t system_page = os::page_size();
    const char* first = from - uintptr_t(from) % system_page;
    size_t count = (size_t(end - first) + system_page - 1) / system_page;
    unsigned char* to = states_ + size_t(first - window) / system_page;
    // Part of the range may have been unmapped: queries the rest page by page.
    if (!os::resident(first, count * system_page, to))
      for (size_t i = 0; i < count; ++i)
        if (refused_ || !os::resident(first + i * system_page, system_page, to + i)) to[i] = 0;
    window_ = window;
    from_ = first;
    end_ = end;
  }
  size_t count(const char* window, const char* from, const char* end) const {
    const size_t system_page = os::page_size();
    size_t bytes = 0;
    for (const char* at = from; at < end;) {
      const char* next = at - uintptr_t(at) % system_page + system_page;
      if (next > end) next = end;
      if ((states_[size_t(at - window) / system_page] & 1) != 0) bytes += size_t(next - at);
      at = next;
    }
    return bytes;
  }

  bool asked_, refused_;
  const char* window_ = nullptr;
  const char *from_ = nullptr, *end_ = nullptr;
  unsigned char states_[kSegmentBytes / 4096];
};

struct Walk {
  HeapSnapshot* out;
  Residency residency;

  void add(Part part, size_t bytes, size_t resident) {
    out->parts[int(part)].bytes += bytes;
    out->parts[int(part)].resident += resident;
  }
  void add(Part part, const char* from, size_t bytes) {
    add(part, bytes, residency.resident(from, from + bytes));
  }
  // Counts residence alone: `mapped` has the bytes.
  void add_descriptors(const void* base, size_t bytes) {
    auto* from = static_cast<const char*>(base);
    out->parts[int(Part::kMetadata)].resident += residency.resident(from, from + bytes);
  }
  void add_objects(size_t objects, size_t bytes) {
    if (objects == 0) return;
    out->objects += objects;
    size_t each = bytes / objects;
    out->histogram[each == 0 ? 0 : 63 - __builtin_clzl(each)] += objects;
  }
  // A large object at `offset` in `bytes` from `base` on.
  void add_large(const char* base, size_t bytes, size_t offset) {
    size_t used = bytes - less(offset, bytes);
    size_t resident = residency.resident(base, base + bytes), of_used = less(resident, used);
    add_objects(1, used);
    add(Part::kInUse, used, of_used);
    add(Part::kTail, bytes - used, resident - of_used);
    out->rounding_most += less(kPageBytes - 1, used);
  }
};

void add_slab(Slab* s, Walk& walk) {
  HeapSnapshot* out = walk.out;
  int c = peek(s->size_class);
  size_t carved = peek(s->carved), all = size_t{s->pages} * kPageBytes;
  if (c >= kClasses || carved > s->capacity) {
    out->sound = false;
    return walk.add(Part::kInUse, s->base, all);
  }
  size_t size = kSizeClasses.size[c], used = objects_in_use(s);
  if (used > carved) used = carved;
  ClassSnapshot& of = out->of_class[c];
  ++out->slabs;
  ++of.slabs;
  of.objects += used;
  of.free_objects += carved - used;
  ThreadHeap* owner = s->owner();
  (owner != kUnowned ? of.own_free : of.central_free) += all - used * size;
  if (owner != kUnowned && owner == thread_state.heap) out->mine += all - used * size;
  out->small_in_use += used * size;
  size_t below = c == 0 ? 0 : kSizeClasses.size[c - 1];
  out->rounding_most += used * (size - below - 1);
  walk.add_objects(used, used * size);
  const char* base = s->base;
  size_t handed_out = carved * size, room = s->capacity * size;
  size_t resident = walk.residency.resident(base, base + handed_out);
  size_t of_used = less(resident, used * size);
  walk.add(Part::kInUse, used * size, of_used);
  walk.add(Part::kSlabFree, handed_out - used * size, resident - of_used);
  walk.add(Part::kUncarved, base + handed_out, room - handed_out);
  walk.add(Part::kTail, base + room, all - room);
}

void add_span(Slab* s, Walk& walk) {
  HeapSnapshot* out = walk.out;
  ++out->descriptors;
  size_t bytes = size_t{s->pages} * kPageBytes;
  if (page_map.find(s->base) != s || s->bytes < kPageBytes) out->sound = false;
  switch (s->kind) {
    case Kind::kSlab:
      return add_slab(s, walk);
    case Kind::kSampled:
      return walk.add(Part::kSampleSlabs, s->base, bytes);
    default:
      ++out->spans;
      out->span_bytes += bytes - less(s->offset, bytes);
      return walk.add_large(s->base, bytes, s->offset);
  }
}

void add_pages(const PageRange& pages, Walk& walk) {
  const Region& region = *pages.segment->region;
  if (pages.base == region.base) {
    walk.out->region_bytes += region.count * kSegmentBytes;
    walk.add_descriptors(region.segments, source_table_bytes(region));
  }
  walk.residency.expect(pages.segment->base);
  constexpr Part kOf[] = {Part::kInUse, Part::kCachedSpans, Part::kPageDirty, Part::kPageClean};
  pages.slab != nullptr ? add_span(pages.slab, walk)
                        : walk.add(kOf[pages.state], pages.base, pages.bytes);
}

void add_metadata(Walk& walk) {
  HeapSnapshot& s = *walk.out;
  size_t objects = s.heap_bytes();
  s.parts[int(Part::kMetadata)].bytes = s.mapped > objects ? s.mapped - objects : 0;
  if (!walk.residency.known()) return;
  auto visit = [&](const void* base, size_t bytes) { walk.add_descriptors(base, bytes); };
  meta_for_each_chunk(visit);
  sites_table(visit);
  page_map.for_each_table(
      [&](const void* base, size_t bytes) {
        auto* from = static_cast<const char*>(base);
        return walk.residency.resident(from, from + bytes) != 0;
      },
      visit);
}

}  // namespace

size_t objects_in_use(const Slab* s) {
  uint32_t carved = peek(s->carved);
  // On the full list `used` is 1, whatever is in use.
  if (peek(s->list) == &s->free)
    return s->free.peek() == nullptr && peek(s->purged_at) == 0 ? carved : peek(s->used);
  size_t listed = 0;
  // A slab that is being made has no owner and no list yet.
  if (thread_state.heap != nullptr && s->owner() == thread_state.heap)
    for_each_free(*thread_state.heap, s->size_class, [&](const void*, size_t, Place place) {
      listed += place == Place::kHeads ? 1 : 0;
    });
  return carved - less(listed, carved);
}

size_t HeapSnapshot::free_in_threads() const {
  size_t total = part(Part::kCachedSpans);
  for (const ClassSnapshot& c : of_class) total += c.own_free;
  return total;
}

size_t HeapSnapshot::free_in_central() const {
  size_t total = 0;
  for (const ClassSnapshot& c : of_class) total += c.central_free;
  return total;
}

void walk_heap(HeapSnapshot* out, Residence residence) {
  *out = {};
  out->sound = true;
  SlowPath path;
  if (!path.entered()) return;
  out->complete = true;
  // So that remote frees, deferred frees and the one-entry caches count as free.
  if (ThreadHeap* heap = thread_state.heap) {
    heap->flush();
    heap->collect();
  }
  large_evict_last_freed();
  registry_release_unused();
  Walk walk = {out, Residency(residence == Residence::kAsked)};
  page_heap.for_each([&](const PageRange& pages) { add_pages(pages, walk); });
  large_for_each([&](const char* base, size_t bytes, size_t offset) {
    ++out->mappings;
    out->huge_bytes += bytes;
    walk.add_large(base, bytes, offset);
  });
  large_for_each_cached(
      [&](const char* base, size_t bytes) { walk.add(Part::kCachedMappings, base, bytes); });
  guard_for_each([&](const char* base, size_t bytes) {
    out->guarded_bytes += bytes;
    walk.add(Part::kSampleSlabs, base, bytes);
  });
  if (const ThreadHeap* heap = thread_state.heap) out->mine += heap->cache.span_bytes;
  out->heaps = heap_counts();
  out->mapped = size_t(stats::get(stats::kMappedBytes));
  out->huge_peak = size_t(stats::get(stats::kHugePeakBytes));
  add_metadata(walk);
  out->resident_known = walk.residency.known();
}

bool is_object(const void* p) {
  const Slab* s = page_map.find_any(p);
  switch (s->kind) {
    case Kind::kSlab:
    case Kind::kSampled: {
      auto at = size_t(static_cast<const char*>(p) - s->base);
      size_t size = kSizeClasses.size[s->size_class];
      return at % size == 0 && at / size < s->carved;
    }
    case Kind::kSpan:
    case Kind::kHuge:
    case Kind::kEmergency:
      return p == s->object();
    default:
      return false;
  }
}

}  // namespace larder
