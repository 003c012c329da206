#include "core/check.h"

#ifdef LARDER_DEBUG

#include "core/central.h"
#include "core/page_heap.h"
#include "core/purge_slab.h"
#include "core/registry.h"
#include "core/thread_heap.h"

namespace larder {

namespace {

// The objects of a slab that were met.
class Met {
 public:
  explicit Met(const Slab* s) : slab_(s), size_(kSizeClasses.size[s->size_class]) {}
  // A free object lies on a boundary, is carved, and is free once: so each list is finite.
  void add(void* p) {
    auto at = size_t(static_cast<char*>(p) - slab_->base);
    LARDER_CHECK(static_cast<char*>(p) >= slab_->base && at % size_ == 0);
    LARDER_CHECK(at / size_ < slab_->carved);
    uint64_t& word = bits_[at / size_ / 64];
    uint64_t bit = uint64_t{1} << at / size_ % 64;
    LARDER_CHECK((word & bit) == 0);
    word |= bit;
  }
  uint32_t add_list(void* list) {
    uint32_t count = 0;
    for (void* p = list; p != nullptr; p = next_of(p), ++count) add(p);
    return count;
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

// REQUIRES: the slab is not current.
void check_counts(const Slab* s) {
  LARDER_CHECK(s->list == &s->free);
  Met met(s);
  uint32_t decommitted = 0;
  for_each_decommitted(s, [&](uint32_t object) {
    met.add(s->base + object * size_t{kSizeClasses.size[s->size_class]});
    ++decommitted;
  });
  LARDER_CHECK(s->decommitted == 0 || s->purged_at != 0);
  LARDER_CHECK(s->used + met.add_list(s->free) + decommitted == s->carved);
  LARDER_CHECK(met.add_list(remote_list(s)) <= s->used);
}

void check_current(const ThreadHeap& heap, int c) {
  const Slab* s = heap.bins[c].current;
  int deferred = 0;
  if (s != nullptr) {
    check_slab(s, &heap, c);
    LARDER_CHECK(s->list == &heap.heads[c] && s->free == nullptr && s->purged_at == 0);
    LARDER_CHECK(remote_state(s) == kOwned && s->used <= kCurrentBias + s->capacity);
    Met met(s);
    heap.for_each_listed(c,
                         [&](void* p) { page_map.find(p) == s ? met.add(p) : void(++deferred); });
    met.add_list(remote_list(s));
  } else {
    LARDER_CHECK(heap.heads[c] == nullptr && heap.bins[c].sample_points == nullptr);
  }
  LARDER_CHECK(deferred <= kSizeClasses.max_deferred[c]);
  const uint8_t counted = heap.bins[c].deferred;
  LARDER_CHECK(counted == 0 || counted == kDeferNoMore || heap.with_deferred.contains(c));
}

// Deferred frees are in use for their slabs.
void check_deferred(const ThreadHeap& heap, int c) {
  heap.for_each_listed(c, [&](void* p) {
    const Slab* s = page_map.find(p);
    LARDER_CHECK(s->kind == Kind::kSlab && s->size_class == c);
    LARDER_CHECK(size_t(static_cast<char*>(p) - s->base) % kSizeClasses.size[c] == 0);
    if (s == heap.bins[c].current || s->owner() != &heap) return;
    for (void* other = s->free; other != nullptr; other = next_of(other)) LARDER_CHECK(other != p);
  });
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
    Met met(s);
    met.add_list(s->free);
    met.add_list(remote_list(s));
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

void visit_heap(ThreadHeap& heap, void* context) {
  if (heap.registered.orphaned || heap.registered.leaked) return;
  check_heap(heap);
  size_t& known = static_cast<Census*>(context)->owned_known;
  known += heap.full.slabs.size();
  for (const SlabList& list : heap.cache.empties) known += list.size();
  for (const Bin& bin : heap.bins) known += bin.partial.size() + (bin.current != nullptr ? 1 : 0);
}

void visit_central(const SlabList& list, int c, void* context) {
  check_list(list, [c](const Slab* s) {
    check_slab(s, kUnowned, c);
    check_counts(s);
    LARDER_CHECK(remote_state(s) == kCentral && s->used != 0);
  });
  static_cast<Census*>(context)->central_known += list.size();
}

void visit_slab(Slab* s, void* context) {
  auto* census = static_cast<Census*>(context);
  if (s->kind != Kind::kSlab) return;
  const ThreadHeap* owner = s->owner();
  switch (remote_state(s)) {
    case kOwned:
      LARDER_CHECK(owner != kUnowned);
      census->owned += owner->registered.orphaned || owner->registered.leaked ? 0 : 1;
      break;
    case kFull:
      check_slab(s, kUnowned, s->size_class);
      LARDER_CHECK(s->used == s->capacity && s->carved == s->capacity && s->free == nullptr);
      LARDER_CHECK(s->purged_at == 0);
      break;
    default:
      ++census->central;
  }
}

}  // namespace

void check_heap(const ThreadHeap& heap) {
  for (int c = 0; c < kClasses; ++c) {
    check_current(heap, c);
    check_deferred(heap, c);
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
  registry_for_each(visit_heap, &census);
  central_for_each(visit_central, &census);
  page_heap.for_each(visit_slab, &census);
  LARDER_CHECK(census.owned == census.owned_known);
  LARDER_CHECK(census.central == census.central_known);
  page_heap.check();
}

#endif  // LARDER_DEBUG
