#include "core/check.h"

#include "core/limit.h"
#include "core/page_heap.h"

namespace larder {

void PageHeap::check() {
  LockGuard guard(lock_);
  size_t dirty_segments = 0;
  size_t free_pages = 0, clean_pages = 0, forbidden = 0;
  for (Region* r = regions_; r != nullptr; r = r->next) {
    for (unsigned i = 0; i < r->count; ++i) {
      const Segment& segment = r->segments[i];
      LARDER_CHECK(segment.longest == longest_span(segment.free_pages));
      LARDER_CHECK((r->free_segments >> i & 1) == (segment.wholly_free() ? 1u : 0u));
      LARDER_CHECK(segment.in_dirty_list == ((segment.free_pages & segment.dirty) != 0));
      dirty_segments += segment.in_dirty_list ? 1 : 0;
      forbidden += segment.huge == Huge::kForbidden ? 1 : 0;
      free_pages += size_t(count_pages(segment.free_pages));
      clean_pages += size_t(count_pages(segment.free_pages & ~segment.dirty));
    }
  }
  for (int length = 1; length < kPagesPerSegment; ++length) {
    LARDER_CHECK((buckets_[length] != nullptr) == ((bucket_bits_ >> length & 1) != 0));
    for (Segment* segment = buckets_[length]; segment != nullptr; segment = segment->next)
      LARDER_CHECK(segment->longest == length);
  }
  LARDER_CHECK(dirty_segments == dirty_whole_.size() + dirty_part_.size() + dirty_dense_.size());
  LARDER_CHECK(forbidden == forbidden_huge_);
  LARDER_CHECK(this != &page_heap || limit::state.clean_bytes == clean_pages * kPageBytes);
  LARDER_CHECK(used_bytes_ == (segments_ * kPagesPerSegment - free_pages) * kPageBytes);
}

}  // namespace larder

#ifdef LARDER_DEBUG

#include "core/central.h"
#include "core/free_memory.h"

namespace larder {

namespace {

// The objects of a slab that were met.
class Met {
 public:
  explicit Met(const Slab* s) : slab_(s), size_(kSizeClasses.size[s->size_class]) {}
  // A free object lies on a boundary, is carved, and is free once: so each list is finite.
  void add(const void* p) {
    auto at = size_t(static_cast<const char*>(p) - slab_->base);
    LARDER_CHECK(p >= slab_->base && at % size_ == 0);
    LARDER_CHECK(at / size_ < slab_->carved);
    uint64_t& word = bits_[at / size_ / 64];
    uint64_t bit = uint64_t{1} << at / size_ % 64;
    LARDER_CHECK((word & bit) == 0);
    word |= bit;
  }

 private:
  const Slab* slab_;
  size_t size_;
  uint64_t bits_[kPageBytes / 8 / 64] = {};  // slabs of more pages have fewer objects
};

void check_slab(const Slab* s, const ThreadHeap* owner, int c) {
  LARDER_CHECK(s->kind == Kind::kSlab && s->owner() == owner && s->size_class == c);
  LARDER_CHECK(s->capacity == kSizeClasses.capacity[c] && s->pages == kSizeClasses.pages[c]);
  LARDER_CHECK(s->carved <= s->capacity);
  for (uint32_t page = 0; page < s->pages; ++page)
    LARDER_CHECK(page_map.find(s->base + page * kPageBytes) == s);
}

// REQUIRES: the slab is not current. Returns the number of its free objects, without remote frees.
uint32_t count_free(const Slab* s, uint32_t* remote) {
  Met met(s);
  uint32_t counts[int(Place::kRemote) + 1] = {};
  for_each_free(s, [&](const void* p, size_t, Place place) {
    met.add(p);
    ++counts[int(place)];
  });
  LARDER_CHECK(counts[int(Place::kDecommitted)] == 0 || s->purged_at != 0);
  *remote = counts[int(Place::kRemote)];
  return counts[int(Place::kSlab)] + counts[int(Place::kDecommitted)];
}

void check_counts(const Slab* s) {
  LARDER_CHECK(s->list == &s->free);
  uint32_t remote = 0;
  LARDER_CHECK(s->used + count_free(s, &remote) == s->carved);
  LARDER_CHECK(remote <= s->used);
}

// What the heap has of the class outside of slabs that are not current.
void check_class(const ThreadHeap& heap, int c) {
  const Slab* s = heap.bins[c].current;
  if (s != nullptr) {
    check_slab(s, &heap, c);
    LARDER_CHECK(s->list == &heap.heads[c] && s->free == nullptr && s->purged_at == 0);
    LARDER_CHECK(remote_state(s) == kOwned && s->used <= kCurrentBias + s->capacity);
  } else {
    LARDER_CHECK(heap.heads[c] == nullptr && heap.bins[c].sample_points == nullptr);
  }
  Met met(s != nullptr ? s : page_map.null_slab());
  if (s != nullptr) for_each_free(s, [&](const void* p, size_t, Place) { met.add(p); });
  int deferred = 0;
  for_each_free(heap, c, [&](const void* p, size_t, Place place) {
    const Slab* of = page_map.find(p);
    if (place == Place::kHeads && of == s) return met.add(p);
    LARDER_CHECK(of->kind != Kind::kSlab || at_object(p, of));
    if (place != Place::kHeads) return;
    LARDER_CHECK(of->kind == Kind::kSlab && of->size_class == c);
    ++deferred;
    if (of->owner() == &heap)
      for_each_free(of, [&](const void* other, size_t, Place) { LARDER_CHECK(other != p); });
  });
  LARDER_CHECK(deferred <= kSizeClasses.max_deferred[c]);
  const uint8_t counted = heap.bins[c].deferred;
  LARDER_CHECK(counted == 0 || counted == kDeferNoMore || heap.with_deferred.contains(c));
}

template <typename Visit>
void check_list(const SlabList& list, Visit visit) {
  size_t count = 0;
  const Slab* before = nullptr;
  for (const Slab* s = list.front(); s != nullptr; before = s, s = s->next, ++count) {
    LARDER_CHECK(s->prev == before && count < list.size());
    visit(s);
  }
  LARDER_CHECK(list.back() == before && count == list.size());
}

void check_cached(const ThreadHeap& heap) {
  size_t empty_bytes = 0;
  for (int step = 0; step < kSlabPageSteps; ++step)
    check_list(heap.cache.empties[step], [&](const Slab* s) {
      check_slab(s, &heap, s->size_class);
      check_counts(s);
      LARDER_CHECK(s->used == 0 && s->pages == 1u << step);
      empty_bytes += s->pages * kPageBytes;
    });
  LARDER_CHECK(empty_bytes == heap.cache.empty_bytes);
  size_t full_bytes = 0;
  check_list(heap.full.slabs, [&](const Slab* s) {
    // `used` of a slab on the full list is counted when it leaves the list.
    check_slab(s, &heap, s->size_class);
    LARDER_CHECK(s->list == &s->free && s->carved == s->capacity && remote_state(s) == kOwned);
    LARDER_CHECK(s->purged_at == 0);
    uint32_t remote = 0;
    count_free(s, &remote);
    full_bytes += s->pages * kPageBytes;
  });
  LARDER_CHECK(full_bytes == heap.full.bytes);
  size_t span_bytes = 0;
  for (unsigned pages = 0; pages <= kMaxCachedSpanPages; ++pages)
    for (const Slab* s = heap.cache.spans[pages]; s != nullptr; s = s->next) {
      LARDER_CHECK(s->kind == Kind::kFree && s->pages == pages && page_map.find(s->base) == s);
      span_bytes += s->bytes;
    }
  LARDER_CHECK(span_bytes == heap.cache.span_bytes);
  if (const Slab* s = heap.cache.last_freed) LARDER_CHECK(s->kind == Kind::kFree);
}

void check_pending(const RemoteCache& cache) {
  size_t bytes = 0;
  for (const RemoteCache::Slot& slot : cache.slots) {
    if (slot.slab == nullptr) continue;
    auto index = size_t(&slot - cache.slots);
    LARDER_CHECK((cache.taken[index / 64] >> index % 64 & 1) != 0);
    uint32_t count = 1;
    for (void* p = slot.head; p != slot.tail; p = next_of(p), ++count)
      LARDER_CHECK(count < slot.count && page_map.find(p) == slot.slab);
    LARDER_CHECK(count == slot.count);
    bytes += count * size_t{kSizeClasses.size[slot.slab->size_class]};
  }
  LARDER_CHECK(bytes == cache.pending_bytes);
}

// The slabs that heaps and central lists know, and those that exist.
struct Census {
  size_t owned_known = 0, owned = 0;
  size_t central_known = 0, central = 0;
};

void check_state(const Slab* s, Census& census) {
  if (s->kind != Kind::kSlab) return;
  const ThreadHeap* owner = s->owner();
  switch (remote_state(s)) {
    case kOwned:
      LARDER_CHECK(owner != kUnowned);
      census.owned += owner->registered.orphaned || owner->registered.leaked ? 0 : 1;
      break;
    case kFull:
      check_slab(s, kUnowned, s->size_class);
      LARDER_CHECK(s->used == s->capacity && s->carved == s->capacity && s->free == nullptr);
      LARDER_CHECK(s->purged_at == 0);
      break;
    default:
      ++census.central;
  }
}

}  // namespace

void check_heap(const ThreadHeap& heap) {
  for (int c = 0; c < kClasses; ++c) {
    check_class(heap, c);
    LARDER_CHECK(heap.bins[c].partial.empty() || heap.with_partial.contains(c));
    check_list(heap.bins[c].partial, [&](const Slab* s) {
      check_slab(s, &heap, c);
      check_counts(s);
      LARDER_CHECK(remote_state(s) == kOwned);
    });
  }
  check_cached(heap);
  check_pending(heap.remote);
}

}  // namespace larder

void larder_check(void) {
  using namespace larder;
  SlowPath path;
  if (!path.entered()) return;
  Census census;
  registry_for_each([&](const ThreadHeap& heap) {
    if (heap.registered.orphaned || heap.registered.leaked) return;
    check_heap(heap);
    census.owned_known += heap.full.slabs.size();
    for (const SlabList& list : heap.cache.empties) census.owned_known += list.size();
    for (const Bin& bin : heap.bins)
      census.owned_known += bin.partial.size() + (bin.current != nullptr ? 1 : 0);
  });
  central_for_each([&](const SlabList& list, int c) {
    check_list(list, [c](const Slab* s) {
      check_slab(s, kUnowned, c);
      check_counts(s);
      LARDER_CHECK(remote_state(s) == kCentral && s->used != 0);
    });
    census.central_known += list.size();
  });
  page_heap.for_each([&](const PageRange& pages) {
    if (pages.slab != nullptr) check_state(pages.slab, census);
  });
  LARDER_CHECK(census.owned == census.owned_known);
  LARDER_CHECK(census.central == census.central_known);
  page_heap.check();
  for_each_free([](const void* at, size_t, Place place) {
    const Slab* s = page_map.find(at);  // the end of a span that was shrunk has its entries still
    bool in_use = s->kind > Kind::kFree && at < s->base + s->bytes;
    LARDER_CHECK(place < Place::kCachedPages || !in_use);
  });
}

#endif  // LARDER_DEBUG
