// The slow paths behind malloc and free, each guarded against a signal handler that interrupts it
// (SlowPath), and what all requests go through that are no small objects'.
#include <errno.h>
#include <string.h>

#include <utility>

#include "base/stats.h"
#include "core/foreign.h"
#include "core/guard.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/misuse.h"
#include "core/page_heap.h"
#include "core/pressure.h"
#include "core/purge.h"
#include "core/registry.h"
#include "core/shared.h"
#include "core/thread_heap.h"
#include "os/backing.h"

namespace larder {

namespace {

void* or_enomem(void* p) {
  if (unlikely(p == nullptr)) errno = ENOMEM;
  return p;
}

// Calls `allocate`. On failure it releases all free memory and tries again, then calls the
// out-of-memory callback and tries again; not for sizes beyond the address space.
template <typename Allocate>
void* allocate_with_retry(size_t size_bytes, Allocate allocate) {
  void* p = allocate();
  if (size_bytes > kSmallMax) {
    purge_for_growth();
    purge_tick();
  }
  if (p == nullptr && size_bytes < size_t{1} << (kAddressBits - 1)) {
    if (release_all_memory()) p = allocate();
    if (p == nullptr && call_out_of_memory_callback(size_bytes)) p = allocate();
  }
  if (unlikely(limit::crossed())) relieve_pressure();
  return or_enomem(p);
}

// Old content might point to leaked objects.
void clear_large(Slab* s) {
  if (s->kind == Kind::kHuge && backing::discard(s->base, s->bytes)) return;
  memset(s->base, 0, s->bytes);
}

// A new large object on which no sample point falls.
LARDER_FAST void* charge(Slab* s, size_t size_bytes, const Countdown& countdown) {
  s->charged = size_bytes;
  s->expected = countdown.mean_points(size_bytes);
  return s->object();
}

// Counts a new large object for the sampler.
void* charge_large(void* p, size_t size_bytes, bool zero, void* caller) {
  if (p == nullptr) return p;
  Slab* s = page_map.find(p);
  s->charged = size_bytes;
  bool hit = countdown_hits(size_bytes, &s->expected);
  if (likely(!hit && !sample_all)) return p;
  if (sample_all && !zero) clear_large(s);
  SamplePoint* point =
      sample_point_new(nullptr, sample_all ? 1 : objects_of_sample(double(s->expected)));
  if (point != nullptr) sample_large(point, s, size_bytes, caller, countdown_of_thread());
  return p;
}

// A large object, or one of a large alignment, that no cache serves. *zero: it reads as zeros.
void* allocate_uncached(size_t size_bytes, size_t align, bool* zero, void* caller) {
  SlowPath path;
  *zero = !path.entered();
  if (*zero) return or_enomem(emergency_alloc(size_bytes, align));
  void* p = allocate_with_retry(size_bytes, [=] { return large_alloc(size_bytes, align, zero); });
  return charge_large(p, size_bytes, *zero, caller);
}

// A thread's first frees may be its last, after its keys' destructors: glibc frees the thread-local
// storage of the stacks that it caches no longer. Nothing would give up a heap there. And those of
// a thread that shares: a heap that another thread has left would go on to the next at its end.
ThreadHeap* heap_for_free() {
  ThreadState& t = thread_state;
  if (t.heap != nullptr || t.frees == kFreesWithoutHeap) return thread_heap();
  ++t.frees;
  return nullptr;
}

void slab_free_slow(void* p, Slab* s) {
  if (ThreadHeap* heap = heap_for_free()) {
    if (s->owner() != kUnowned || !remote_try_adopt(s)) return remote_free(heap, s, p);
    HeapCounters::add(heap->counters.adopted_slabs, 1);
    heap->adopt(s);
    return heap->push_local(s, p);
  }
  bool is_new = thread_state.phase == ThreadState::kNew;
  if (is_new && remote_push_without_heap(s, p)) return;
  shared_free(p, s->size_class);
}

void free_in_signal(void* p, Slab* s) {
  // These take no lock.
  if (s->kind == Kind::kEmergency) return large_free(s);
  if (s->kind == Kind::kSampled) return sample_free_in_signal(p);
  if (s->kind != Kind::kSlab || !remote_push_without_heap(s, p))
    stats::add(stats::kLeakedInSignal, 1);
}

LARDER_WARM void* malloc_slower(size_t size_bytes, size_t c, bool* zero) {
  SlowPath path;
  if (!path.entered()) {
    // The alignment of the class.
    size_t size = kSizeClasses.size[c];
    size_t align = size & (~size + 1);
    return or_enomem(emergency_alloc(size, align < 16 ? 16 : align));
  }
  void* caller = __builtin_return_address(0);
  return allocate_with_retry(kSizeClasses.size[c], [size_bytes, c, caller, zero] {
    if (unlikely(sample_all)) return sample_exact(int(c), size_bytes, caller);
    ThreadHeap* heap = thread_heap();
    if (heap == nullptr) return shared_malloc(int(c), size_bytes, caller);
    if (heap->is_time_to_purge()) {
      purge_tick();
      heap->purge_if_shrinking();
    }
    heap->carved_clean = nullptr;
    void* p = heap->refill(int(c));
    SamplePoint* point = std::exchange(heap->sampled_point, nullptr);
    if (zero != nullptr) *zero = point == nullptr && p == heap->carved_clean;
    if (likely(point == nullptr)) return p;
    return sample_small(point, int(c), size_bytes, caller, &heap->countdown);
  });
}

LARDER_WARM void* malloc_large_slow(size_t size_bytes) {
  SlowPath path;
  if (!path.entered()) return or_enomem(emergency_alloc(size_bytes, 16));
  void* caller = __builtin_return_address(0);
  // A thread of mappings alone needs a heap, too, to come through malloc_large() and free_slow().
  ThreadHeap* heap = thread_heap();
  bool has_cache = heap != nullptr && size_bytes <= kSpanMax;
  void* p = nullptr;
  if (size_bytes > kSpanMax) {
    if (Slab* s = large_take_last_freed(size_bytes)) p = s->object();
  } else if (has_cache && heap->cache.last_freed_fits(size_bytes)) {
    p = heap->cache.take_last_freed()->object();
  } else if (has_cache) {
    unsigned pages = span_pages(size_bytes);
    heap->cache.evict_last_freed();
    if (Slab* span = heap->cache.take_span(pages))
      p = large_reuse(span, size_bytes);
    else
      heap->cache.raise_limit(pages * kPageBytes);
  }
  bool zero = false;
  if (p == nullptr)
    p = allocate_with_retry(size_bytes, [&] { return large_alloc(size_bytes, 16, &zero); });
  // The cached memory is dirty, a clean span would raise the peak: use the cache up first.
  if (p != nullptr && has_cache && zero && heap->cache.bytes() != 0) {
    page_heap.free_span(page_map.find(p), 0);
    heap->trim();
    p = allocate_with_retry(size_bytes, [&] { return large_alloc(size_bytes, 16, &zero); });
  }
  return charge_large(p, size_bytes, zero, caller);
}

void follow_early_purge(ThreadHeap* heap, unsigned count_before) {
  if (likely(purge_early_count() == count_before) || heap == nullptr) return;
  heap->trim();
  purge_all();
}

}  // namespace

// Sets `zero`, if there is one, to whether it knows that the object holds zeros.
static void* malloc_slow(size_t size_bytes, size_t c, bool* zero) {
  thread_state.last = ThreadState::kNoLast;
  if (ThreadHeap* heap = thread_state.heap) {
    SlowPath path;
    if (path.entered())
      if (void* p = heap->refill_quickly(int(c))) return p;
  } else if (shares()) {
    if (void* p = shared_take(int(c))) return p;
  }
  return malloc_slower(size_bytes, c, zero);
}

void* malloc_slow(size_t size_bytes, size_t c) { return malloc_slow(size_bytes, c, nullptr); }

void* malloc_large(size_t size_bytes) {
  ThreadHeap* heap = thread_state.heap;
  if (heap != nullptr && !thread_state.busy) {
    if (heap->cache.last_freed_fits(size_bytes)) {
      if (heap->countdown.passes(size_bytes))
        return charge(heap->cache.take_last_freed(), size_bytes, heap->countdown);
    } else if (size_bytes > kSpanMax && large_last_freed_fits(size_bytes) &&
               heap->countdown.passes(size_bytes)) {
      if (Slab* s = large_take_last_freed(size_bytes))
        return charge(s, size_bytes, heap->countdown);
      // Another thread has taken it, or it is too small by its colour: counted below.
      heap->countdown.large_bytes += size_bytes;
    }
  }
  return malloc_large_slow(size_bytes);
}

void free_empty(Slab* s) noexcept {
  SlowPath path;
  // In a signal handler the slab stays partial, with all objects free.
  if (!path.entered()) return;
  ThreadHeap* heap = thread_state.heap;
  if (likely(heap->reopened(s))) return;
  unsigned early = purge_early_count();
  // The heap frees more than it allocates. Deferred frees might keep other slabs from becoming
  // empty.
  size_t before = heap->emptied_bytes;
  if (heap->emptied(s)) {
    heap->release_some_deferred();
    if (before / kSlabPurgeStepBytes != heap->emptied_bytes / kSlabPurgeStepBytes)
      heap->purge_if_shrinking();
  }
  follow_early_purge(heap, early);
}

namespace {

// Frees the object of a sample slab, then its slot.
LARDER_WARM void free_sampled(void* p, Slab* s) {
  SamplePoint* point = nullptr;
  int c = s->size_class;  // another thread may own the slab once the object is free
  {
    SlowPath path;
    if (!path.entered()) return free_in_signal(p, s);
    point = sample_free(s, p);
    if (point != nullptr && heap_for_free() == nullptr) return shared_free_slot(point);
  }
  if (point != nullptr) {
    free_fast(point->slot);
    SlowPath path;
    if (path.entered()) thread_state.heap->free_sampled_slot(c, point);
  }
  free_left_by_signals();
}

LARDER_WARM void free_slower(void* p, Slab* s) {
  if (s->kind == Kind::kNull) {
    if (!foreign_free(p)) report_misuse("free", Misuse::kNoObject, p);
    return;
  }
  if (s->kind == Kind::kSampled) return free_sampled(p, s);
  SlowPath path;
  if (!path.entered()) return free_in_signal(p, s);
  if (s->kind == Kind::kSlab) return slab_free_slow(p, s);
  ThreadHeap* heap = s->kind == Kind::kSpan ? heap_for_free() : thread_state.heap;
  if (unlikely(s->sample_point != nullptr)) {
    sample_end(s->sample_point);
    sample_point_drop(std::exchange(s->sample_point, nullptr));
    if (s->kind == Kind::kSpan && heap != nullptr && heap->cache.set_last_freed(s)) return;
  }
  if (s->kind == Kind::kHuge && large_cache_last_freed(s)) return purge_wake();
  if (s->kind == Kind::kSpan && heap != nullptr && heap->cache.add_span(s)) return;
  if (heap != nullptr) heap->cache.report();
  unsigned early = purge_early_count();
  large_free(s);
  purge_tick();
  follow_early_purge(heap, early);
}

}  // namespace

void free_suspect(void* p, Slab* s) noexcept {
  if (!misused("free", Misuse::kDoubleFree, p, s)) push_to_owned(p, s);
}

void free_slow(void* p, Slab* s) noexcept {
  if (p == nullptr) return;
  bool is_ours = s->kind != Kind::kNull;
  if (is_ours && unlikely(looks_misused(p, s)) && misused("free", Misuse::kDoubleFree, p, s))
    return;
  ThreadHeap* heap = thread_state.heap;
  if (heap != nullptr && !thread_state.busy) {
    if (s->kind == Kind::kSlab && s->owner() == kUnowned && heap->defer_free(s, p)) return;
    if (s->kind == Kind::kSpan && heap->cache.set_last_freed(s)) return;
    if (s->kind == Kind::kHuge && large_cache_last_freed(s)) return purge_wake();
  } else if (shares() && s->kind == Kind::kSlab && shared_put(p, s->size_class)) {
    return;
  }
  free_slower(p, s);
}

void* aligned_alloc_any(size_t size_bytes, size_t align) {
  if (unlikely(size_bytes > kMaxSize || align > kMaxSize || size_bytes + align > kMaxSize))
    return or_enomem(nullptr);
  size_t rounded = round_up(size_bytes != 0 ? size_bytes : 1, align);
  if (align <= kPageBytes && rounded <= kSmallMax)
    return malloc_small(class_of(rounded), guard_is_on() ? rounded : size_bytes);
  if (align <= 16) return malloc_large(size_bytes);
  bool zero = false;
  return allocate_uncached(size_bytes, align, &zero, __builtin_return_address(0));
}

void* zeroed_alloc(size_t size_bytes) {
  bool zero = false;
  void* p = nullptr;
  if (size_bytes > kSmallMax) {
    p = allocate_uncached(size_bytes, 16, &zero, __builtin_return_address(0));
  } else if (size_bytes < kCarveBytes) {  // carved with others, so its pages are touched anyway
    p = malloc_fast(size_bytes);
  } else {
    size_t c = class_of(size_bytes);
    p = thread_state.heads[c] == nullptr ? malloc_slow(size_bytes, c, &zero)
                                         : malloc_small(c, size_bytes);
  }
  return p == nullptr || zero ? p : memset(p, 0, size_bytes);
}

size_t usable_size(const Slab* s) {
  bool whole = s->kind == Kind::kSlab || (s->kind == Kind::kSampled && !s->guarded);
  return whole ? kSizeClasses.size[s->size_class] : s->bytes - s->offset;
}

void free_left_by_signals() {
  void* following = nullptr;
  for (void* p = sample_take_freed_in_signal(); p != nullptr; p = following) {
    following = next_of(p);
    free_fast(p);
  }
}

size_t release_free_memory() {
  SlowPath path;
  if (!path.entered()) return 0;
  if (ThreadHeap* heap = thread_state.heap) {
    heap->collect();
    heap->purge_partial(UINT64_MAX);
    heap->trim();
    heap->cache.reset_limit();
  }
  shared_release_cache();
  registry_release_unused();
  return purge_all();
}

}  // namespace larder
