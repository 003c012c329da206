#include "usage.h"

#include "large.h"
#include "page_heap.h"
#include "size_class.h"
#include "stats.h"
#include "thread_heap.h"

namespace larder {

namespace {

// Other threads write what is read here; a torn view costs accuracy, nothing else.
template <typename T>
T peek(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

}  // namespace

size_t objects_in_use(const Slab* s) {
  uint32_t carved = peek(s->carved);
  // `used` of a slab that was set aside says something else.
  if (peek(s->list) == &s->free)
    return peek(s->free) == nullptr && peek(s->thinned_at) == 0 ? carved : peek(s->used);
  size_t listed = 0;
  // A slab that is just being made has no owner, and no list yet: that is not this thread's.
  if (thread_state.heap != nullptr && s->owner() == thread_state.heap)
    thread_state.heap->for_each_listed(s->size_class, [&](void*) { ++listed; });
  return carved - (listed < carved ? listed : carved);
}

namespace {

void add_slab(Slab* s, void* context) {
  auto* usage = static_cast<Usage*>(context);
  // Their objects have slots in other slabs, which are counted.
  if (s->kind == Kind::kSampled) return;
  if (s->kind == Kind::kSlab) {
    ++usage->slabs;
    usage->small_in_use += objects_in_use(s) * kSizeClasses.size[peek(s->size_class)];
  } else {
    usage->large_in_use += peek(s->bytes) - peek(s->offset);
  }
}

}  // namespace

Usage heap_usage() {
  Usage usage = {};
  SlowPath path;
  if (!path.entered()) return usage;
  if (ThreadHeap* heap = thread_state.heap) {
    heap->settle();
    heap->collect();
  }
  large_settle();
  registry_release_unused();
  usage.heaps = heap_counts();
  page_heap.for_each(add_slab, &usage);
  PageHeap::Totals totals = page_heap.totals();
  usage.mapped = size_t(stats::get(stats::kMappedBytes));
  usage.huge_in_use = size_t(stats::get(stats::kHugeBytes));
  usage.huge_peak = size_t(stats::get(stats::kHugePeakBytes));
  usage.huge_count = size_t(stats::get(stats::kHugeCount));
  usage.kept = large_kept_bytes();
  usage.free_dirty = totals.dirty_free_bytes + usage.heaps.kept_bytes;
  usage.free_clean = totals.free_bytes - totals.dirty_free_bytes;
  return usage;
}

}  // namespace larder
