#include "core/shared.h"

#include <utility>

#include "core/cpu_cache.h"
#include "core/registry.h"

namespace larder {

namespace {

// Objects that move between a cache and a heap under one lock.
int batch(int c) { return kSizeClasses.max_deferred[c] / 2; }

// Moves objects of the heap's list to the cache.
void fill_cache(ThreadHeap* heap, int c) {
  Link& head = heap->heads[c];
  for (int i = batch(c); i > 0 && head != nullptr; --i) {
    void* p = head;
    void* following = next_of(p);
    if (!cpu_cache_push(c, p)) return set_next(p, following);
    head = following;
  }
}

}  // namespace

void* shared_take(int c) {
  void* p = cpu_cache_pop(c);
  if (likely(p != nullptr)) clear_link(p);
  return p;
}

bool shared_put(void* p, int c) { return cpu_cache_push(c, p); }

void* shared_malloc(int c, size_t size_bytes, void* caller) {
  ThreadHeap* heap = shared_heap();
  if (heap == nullptr) return nullptr;
  cpu_cache_make();
  SamplePoint* point = nullptr;
  void* p = nullptr;
  {
    LockGuard guard(heap->lock);
    p = heap->refill(c);
    point = std::exchange(heap->sampled_point, nullptr);
    fill_cache(heap, c);
  }
  return point == nullptr ? p : sample_small(point, c, size_bytes, caller, countdown_of_thread());
}

void shared_free(void* p, int c) {
  ThreadHeap* heap = shared_heap();
  if (heap == nullptr) return;
  cpu_cache_make();
  set_next(p, nullptr);
  for (int i = batch(c); i > 0; --i) {
    void* more = cpu_cache_pop(c);
    if (more == nullptr) break;
    set_next(more, p);
    p = more;
  }
  LockGuard guard(heap->lock);
  heap->free_list(p);
}

void shared_free_slot(SamplePoint* point) {
  Slab* s = page_map.find(point->slot);
  ThreadHeap* heap = shared_heap();
  if (heap == nullptr) return sample_point_drop(point);
  LockGuard guard(heap->lock);
  if (s->owner() == heap) {
    heap->push_local(s, point->slot);
    heap->free_sampled_slot(s->size_class, point);
  } else {
    remote_free(heap, s, point->slot);
    sample_point_drop(point);
  }
}

void shared_release_cache() {
  for (int c = 0; c < kClasses; ++c)
    while (void* p = cpu_cache_pop(c)) shared_free(p, c);
}

}  // namespace larder
