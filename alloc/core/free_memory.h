// Free memory: every place where it can lie, and the walks over them.
//
//   place                what is free there                                  file
//   Slab                 objects: its own, decommitted ones, remote frees    slab.h
//   Bin                  objects of the current slab, and deferred frees     bin.h
//   RemoteCache          objects of others' slabs                            remote.h
//   larder_inline_state  objects, where the program inlines malloc           inline.h
//   CpuCache             objects, of threads without a heap                  cpu_cache.h
//   sample slabs         objects of samples that were freed                  sampler.h
//   Central              slabs with free objects, of no heap                 central.h
//   HeapCache            empty slabs and spans                               heap_cache.h
//   PageHeap             pages                                               page_heap.h
//   MappingCache         mappings                                            mapping_cache.h
//
// Invariant, of each slab that holds objects: carved == those that the program has + those in the
// places for objects, each in one place alone.
// Thread safety: other threads may change a list while it is walked. Each step is checked: the walk
// ends at what is no free object, and after kMaxListed. A thread's own heap needs no lock, any
// other that of the registry. Not walked: samples that a signal handler freed, until a thread's
// next free.
#pragma once

#include "core/cpu_cache.h"
#include "core/large.h"
#include "core/page_heap.h"
#include "core/purge_slab.h"
#include "core/registry.h"
#include "core/remote_word.h"
#include "larder/inline.h"

namespace larder {

// What other threads write meanwhile is read as no more than an address, which the page map must
// know.
#define LARDER_RACES __attribute__((no_sanitize("thread")))

enum class Place : uint8_t {
  kSlab,
  kDecommitted,
  // Objects in these count as in use for their slabs; of kHeads, those of slabs that are not
  // current: deferred frees.
  kRemote,
  kHeads,
  kPending,
  kInlined,
  kCpu,
  // Pages: what heaps cache, what the page heap has, and mappings.
  kCachedPages,
  kDirtyPages,
  kCleanPages,
  kMapping
};

template <typename Visit>
LARDER_RACES void for_each_of_list(const void* list, Place place, const Visit& visit) {
  for (uint32_t i = 0; i < kMaxListed && list != nullptr; ++i) {
    const Slab* s = page_map.find_any(list);
    visit(list, kSizeClasses.size[s->size_class], place);
    // What is handed out has no link.
    if (!is_small(s) || !at_object(list, s) || !has_link(list)) return;
    list = next_of(list);
  }
}

// Calls visit(first byte, bytes, place) for what is free in the slab.
template <typename Visit>
LARDER_RACES void for_each_free(const Slab* s, const Visit& visit) {
  for_each_of_list(s->free, Place::kSlab, visit);
  if (s->kind != Kind::kSlab) return;
  for_each_of_list(remote_list(s), Place::kRemote, visit);
  const size_t size = kSizeClasses.size[s->size_class];
  for_each_decommitted(
      s, [&](uint32_t object) { visit(s->base + object * size, size, Place::kDecommitted); });
}

// The same for what the heap has of the class outside of slabs; with inlined code also of smaller
// ones, because that goes by the size of the request.
template <typename Visit>
LARDER_RACES void for_each_free(const ThreadHeap& heap, int c, const Visit& visit) {
  for_each_of_list(heap.heads[c], Place::kHeads, visit);
  // Points are never unmapped, and a dropped one has no slot.
  const SamplePoint* point = heap.bins[c].sample_points;
  for (uint32_t i = 0; i < kMaxListed && point != nullptr; ++i, point = point->next)
    for_each_of_list(point->slot, Place::kHeads, visit);
  for (const RemoteCache::Slot& slot : heap.remote.slots) {
    const Slab* s = __atomic_load_n(&slot.slab, __ATOMIC_RELAXED);  // relaxed: as all of this
    if (s != nullptr && s->size_class == c) for_each_of_list(slot.head, Place::kPending, visit);
  }
  const larder_inline_state* inlined = heap.inlined;
  for (int i = 0; inlined != nullptr && i <= c && i < LARDER_INLINE_CLASSES; ++i) {
    if (LARDER_INLINE_IS_OBJECT(inlined->kept[i]))
      visit(inlined->kept[i], kSizeClasses.size[i], Place::kInlined);
    for_each_of_list(inlined->newer[i], Place::kInlined, visit);
    for_each_of_list(inlined->older[i], Place::kInlined, visit);
  }
}

// The same in all heaps and CPU caches. Heaps that their threads left half changed are left out.
template <typename Visit>
LARDER_RACES void for_each_free(int c, const Visit& visit) {
  // A lambda does not share the attributes of the function around it.
  registry_for_each([&](const ThreadHeap& heap) LARDER_RACES {
    bool known = !heap.registered.orphaned && !heap.registered.leaked && heap.heads != nullptr;
    // The heads of a leaked heap go with its thread, perhaps before that is known.
    if (known && os::is_readable(&heap.heads[c])) for_each_free(heap, c, visit);
  });
  // Relaxed: as all of this.
  for (const auto& of_cpu : cpu_caches.of) {
    const CpuCache* cache = of_cpu.load(std::memory_order_relaxed);
    if (cache == nullptr) continue;
    uint32_t count = __atomic_load_n(&cache->count[c], __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < count && i < kMaxDeferred; ++i)
      visit(__atomic_load_n(&cache->objects[c][i], __ATOMIC_RELAXED), kSizeClasses.size[c],
            Place::kCpu);
  }
}

// All of it.
template <typename Visit>
void for_each_free(const Visit& visit) {
  for (int c = 0; c < kClasses; ++c) for_each_free(c, visit);
  page_heap.for_each([&](const PageRange& pages) {
    constexpr Place kPlaces[] = {Place::kSlab, Place::kCachedPages, Place::kDirtyPages,
                                 Place::kCleanPages};
    if (pages.slab == nullptr)
      visit(pages.base, pages.bytes, kPlaces[pages.state]);
    else if (is_small(pages.slab))
      for_each_free(pages.slab, visit);
  });
  large_for_each_cached(
      [&](const char* base, size_t bytes) { visit(base, bytes, Place::kMapping); });
}

}  // namespace larder
