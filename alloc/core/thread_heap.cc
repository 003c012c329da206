#include "core/thread_heap.h"

#include <errno.h>
#include <string.h>

#include <atomic>
#include <utility>

#include "base/policy.h"
#include "base/single_threaded.h"
#include "base/stats.h"
#include "core/central.h"
#include "core/check.h"
#include "core/foreign.h"
#include "core/guard.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/misuse.h"
#include "core/page_heap.h"
#include "core/pressure.h"
#include "core/purge.h"
#include "core/purge_slab.h"
#include "core/registry.h"
#include "core/slab_span.h"
#include "larder/inline.h"
#include "os/backing.h"
#include "os/options.h"

namespace larder {

constinit thread_local ThreadState thread_state;
constinit bool torn_by_fork = false;

uint32_t thread_id() {
  static constinit std::atomic<uint32_t> last{0};  // relaxed: only that they differ matters
  while (unlikely(thread_state.id == 0))
    thread_state.id = (last.fetch_add(1, std::memory_order_relaxed) + 1) & (UINT32_MAX >> 1);
  return thread_state.id;
}

// --- a slab's life: current, partial, full, disowned

namespace {

// REQUIRES: s is not current. Decommitted objects count.
size_t free_bytes(const Slab* s) {
  return size_t{s->carved - s->used} * kSizeClasses.size[s->size_class];
}

}  // namespace

// Returns the first object of the list; the rest becomes heads[c].
void* ThreadHeap::serve(int c, void* list) {
  heads[c] = next_of(list);
  clear_link(list);
  return list;
}

// Like serve, for up to `bytes` of new free objects, some of which may get sample points.
void* ThreadHeap::hand_out(int c, void* list, size_t bytes) {
  if (unlikely(countdown.bytes < bytes)) return hand_out_sampled(c, list, bytes);
  countdown.bytes -= bytes;
  return serve(c, list);
}

// Makes the slab current and returns its free objects, which the caller serves.
void* ThreadHeap::attach(int c, Slab* s) {
  LARDER_ASSERT(heads[c] == nullptr);
  if (unlikely(s->purged_at != 0)) slab_recommit(s);
  if (idle_adoptions[c] != 0) --idle_adoptions[c];
  void* list = s->free;
  bins[c].current = s;
  s->free = nullptr;
  s->list = &heads[c];
  s->used += kCurrentBias;
  return list;
}

void ThreadHeap::join_partial(Slab* s) {
  bins[s->size_class].partial.push_back(s);
  partial_classes |= ClassSet{1} << s->size_class;
}

// The current slab is full. The heap owns it for a while longer: the next frees are likely to be in
// it, and then cost no atomic operation.
void ThreadHeap::move_to_full_list(int c) {
  Slab* s = std::exchange(bins[c].current, nullptr);
  s->list = &s->free;
  s->used = 1;  // the first free leads to emptied()
  full.push_back(s);
  full_bytes += slab_bytes(s);
  while (full.size() > kMaxFull || full_bytes > kMaxFullBytes) disown_oldest_full();
}

// Restores `used`, which counts the objects that were freed meanwhile.
void ThreadHeap::take_off_full_list(Slab* s) {
  full.remove(s);
  full_bytes -= slab_bytes(s);
  s->used = s->carved;
  for (void* p = s->free; p != nullptr; p = next_of(p)) --s->used;
}

void ThreadHeap::disown_oldest_full() {
  Slab* s = full.front();
  take_off_full_list(s);
  if (s->free == nullptr) {
    s->set_owner(kUnowned);
    if (remote_release(s, kFull)) return;
    s->set_owner(this);
  }
  join_partial(s);  // other threads or a signal handler freed into it
}

void ThreadHeap::push_local(Slab* s, void* p) {
  Link* list = s->list;
  set_next(p, *list);
  *list = p;
  if (--s->used == 0) emptied(s);
}

bool ThreadHeap::emptied(Slab* s) {
  // A current slab gets here after 2^30 frees.
  if (is_current(s)) {
    s->used = kCurrentBias;
    return false;
  }
  // The first free in a slab of the full list.
  if (s->carved == s->capacity && s->purged_at == 0 && next_of(s->free) == nullptr) {
    take_off_full_list(s);
    join_partial(s);
    return false;
  }
  cache_empty_slab(s);
  return true;
}

bool ThreadHeap::defer_free(Slab* s, void* p) {
  int c = s->size_class;
  // A heap that does not allocate the class would not use the object. Two frees in a row in one
  // slab make it worth adopting.
  bool useful = bins[c].current != nullptr && last_deferred_slab[c] != s;
  if (!useful || deferred[c] >= kSizeClasses.max_deferred[c]) return false;
  if (deferred[c]++ == 0) deferred_classes |= ClassSet{1} << c;
  last_deferred_slab[c] = s;
  set_next(p, heads[c]);
  heads[c] = p;
  return true;
}

void ThreadHeap::release_deferred(int c) {
  release_inlined(c);
  deferred_classes &= ~(ClassSet{1} << c);
  if (deferred[c] == 0 || deferred[c] == kDeferNoMore) return;
  deferred[c] = kDeferNoMore;
  thread_state.last = ThreadState::kNoLast;
  // Points stay on slots that stay in the list.
  SamplePoint* point = std::exchange(bins[c].sample_points, nullptr);
  SamplePoint** points = &bins[c].sample_points;
  ObjectList remaining;
  for (void* list = std::exchange(heads[c], nullptr);;) {
    while (void* p = list) {
      list = next_of(p);
      Slab* s = page_map.find(p);
      if (s == bins[c].current) {
        remaining.append(p);
      } else {
        remote_push(this, s, {p, p, 1});
      }
    }
    if (point == nullptr) break;
    SamplePoint* following = point->next;
    list = point->slot;
    if (page_map.find(list) == bins[c].current) {
      // The list of what precedes it has ended; its own begins.
      void* slot = list;
      list = next_of(slot);
      remaining.restart_behind(slot);
      point->next = nullptr;
      *points = point;
      points = &point->next;
    } else {
      sample_point_drop(point);
    }
    point = following;
  }
  heads[c] = remaining.first();
}

void ThreadHeap::release_some_deferred() {
  ClassSet todo = inlined != nullptr ? page_range(0, kClasses) : deferred_classes;
  for (int i = 0; i < kReleasedClasses && todo != 0; ++i) {
    ClassSet ahead = todo >> release_class << release_class;
    release_class = first_page(ahead != 0 ? ahead : todo);
    release_deferred(release_class);
    todo &= ~(ClassSet{1} << release_class);
  }
}

void ThreadHeap::release_all_deferred() {
  for (int c = 0; c < kClasses; ++c) release_deferred(c);
}

void ThreadHeap::adopt(Slab* s) {
  // `last` may have been an object of this slab, when that had another class.
  thread_state.last = ThreadState::kNoLast;
  s->list = &s->free;
  s->free = nullptr;
  s->used = s->carved;
  s->set_owner(this);
  int c = s->size_class;
  SlabList& partial = bins[c].partial;
  join_partial(s);
  if (idle_adoptions[c] < kIdleAdoptions)
    ++idle_adoptions[c];
  else if (partial.size() > kIdleAdoptions && !single_threaded())
    disown(partial.pop_front());
}

void ThreadHeap::adopt_to_central(Slab* s, const Chain& chain) {
  s->list = &s->free;
  set_next(chain.tail, nullptr);
  s->free = chain.head;
  s->used = s->carved - chain.count;
  disown(s);
}

// Moves the remote frees of a slab that is not current to its free list.
void ThreadHeap::take_remote(Slab* s) {
  void* following = nullptr;
  for (void* p = remote_take(s); p != nullptr; p = following) {
    following = next_of(p);
    set_next(p, s->free);
    s->free = p;
    --s->used;
  }
}

// REQUIRES: s is in none of the heap's lists. Ends the ownership.
void ThreadHeap::disown(Slab* s) {
  for (;;) {
    take_remote(s);
    if (s->used == 0) return slab_release(s);
    s->set_owner(kUnowned);
    bool nothing = s->free == nullptr && s->decommitted == 0 && s->carved == s->capacity;
    if (nothing ? remote_release(s, kFull) : central_push(s)) return;
    s->set_owner(this);
  }
}

void ThreadHeap::move_in(ThreadState& t) {
  heads = t.heads;
  for (int c = 0; c < kClasses; ++c) {
    t.heads[c] = std::exchange(own_heads[c], nullptr);
    if (Slab* s = bins[c].current) s->list = &t.heads[c];
  }
  t.heap = this;
  t.owner = reinterpret_cast<uintptr_t>(this);
}

void ThreadHeap::move_out(ThreadState& t) {
  flush();
  inlined = nullptr;
  while (!full.empty()) disown_oldest_full();
  t.last = ThreadState::kNoLast;
  t.owner = kNoHeap;
  t.heap = nullptr;
  for (int c = 0; c < kClasses; ++c) {
    own_heads[c] = std::exchange(t.heads[c], nullptr);
    if (Slab* s = bins[c].current) s->list = &own_heads[c];
  }
  heads = own_heads;
  reset_cache_limit();
}

size_t ThreadHeap::owned_bytes() const {
  size_t bytes = cached_bytes();
  for (int c = 0; c < kClasses; ++c) {
    bytes += bins[c].partial.size() * kSizeClasses.pages[c] * kPageBytes;
    if (const Slab* s = bins[c].current)
      bytes += round_up(size_t{s->carved} * kSizeClasses.size[c], kCarveBytes);
  }
  return bytes;
}

void ThreadHeap::release_all() {
  flush();
  while (!full.empty()) disown_oldest_full();
  for (int c = 0; c < kClasses; ++c) {
    Bin& bin = bins[c];
    if (Slab* s = bin.current) {
      s->free = take_unsampled_list(c);
      uint32_t listed = 0;
      for (void* p = s->free; p != nullptr; p = next_of(p)) ++listed;
      s->list = &s->free;
      s->used = s->carved - listed;
      bin.current = nullptr;
      disown(s);
    }
    while (Slab* s = bin.partial.pop_front()) disown(s);
    fallback_objects[c] = 0;
  }
  trim();
}

bool ThreadHeap::cache_last_freed(Slab* s) {
  if (last_freed != nullptr || s->sample_point != nullptr) return false;
  s->kind = Kind::kFree;
  last_freed = s;
  last_freed_min = s->bytes - kPageBytes + 1;
  last_freed_range = large_usable(s) - last_freed_min;
  return true;
}

void ThreadHeap::flush() {
  release_all_deferred();
  remote_flush(this);
  evict_last_freed();
}

void ThreadHeap::collect() {
  while (!full.empty()) disown_oldest_full();
  for (Bin& bin : bins) {
    for (Slab* s = bin.partial.front(); s != nullptr;) {
      Slab* following = s->next;
      take_remote(s);
      if (s->used == 0) cache_empty_slab(s);
      s = following;
    }
  }
}

void ThreadHeap::collect_some() {
  release_some_deferred();
  for (int i = 0; i < kDisownedSlabs && !full.empty(); ++i) disown_oldest_full();
  int looks = kCollectLooks;
  for (ClassSet todo = partial_classes; todo != 0 && looks > 0;) {
    ClassSet ahead = todo >> collect_class << collect_class;
    collect_class = first_page(ahead != 0 ? ahead : todo);
    Bin& bin = bins[collect_class];
    for (size_t left = bin.partial.size(); left > 0 && looks > 0; --left, --looks) {
      // From the back to the front: the next call takes others.
      Slab* s = bin.partial.back();
      bin.partial.remove(s);
      bin.partial.push_front(s);
      take_remote(s);
      if (s->used == 0) cache_empty_slab(s);
    }
    ClassSet looked_through = ClassSet{1} << collect_class;
    if (bin.partial.empty()) partial_classes &= ~looked_through;
    todo &= ~looked_through;
    if (looks > 0) collect_class = (collect_class + 1) % kClasses;
  }
}

// --- refill

// A partial slab with free objects, or one to carve if the current slab is carved up.
Slab* ThreadHeap::usable_partial(int c) {
  Bin& bin = bins[c];
  Slab* s = bin.partial.front();
  if (s == nullptr) return nullptr;
  if (s->free == nullptr) take_remote(s);
  bool room = bin.current == nullptr || bin.current->carved == bin.current->capacity;
  if (s->free == nullptr && s->decommitted == 0 && !(room && s->carved < s->capacity))
    return nullptr;
  bin.partial.remove(s);
  return s;
}

Slab* ThreadHeap::fresh_slab(int c) {
  emptied_bytes = 0;
  if (Slab* s = take_cached_slab(c)) return s;
  remote_flush(this);
  collect_some();
  raise_cache_limit(kSizeClasses.pages[c] * kPageBytes);
  Slab* s = slab_acquire(c);
  // The cached memory is dirty, a clean span would raise the peak: use the cache up first.
  if (s != nullptr && s->zero && cached_bytes() != 0) {
    slab_release(s);
    trim();
    s = slab_acquire(c);
  }
  if (s == nullptr) return nullptr;
  HeapCounters::add(counters.fresh_slabs, 1);
  s->set_owner(this);
  return s;
}

// Links the objects that start in the next kCarveBytes of the current slab, or more if the front
// says so: system pages are touched when they are needed, not before.
void* ThreadHeap::carve(int c) {
  Slab* s = bins[c].current;
  size_t size = kSizeClasses.size[c];
  char* first = s->base + s->carved * size;
  size_t at = uintptr_t(first) - uintptr_t(s->base);
  size_t end = carve_end(s, round_down(at, kCarveBytes) + kCarveBytes);
  auto count = uint32_t((end - at + size - 1) / size);
  if (count > uint32_t(s->capacity - s->carved)) count = uint32_t(s->capacity - s->carved);
  s->carved = uint16_t(s->carved + count);
  return hand_out(c, link_carved(s, first, count), count * size);
}

// The size-class fallback: the first objects of a class come from the current slab of a slightly
// larger one. A thread that uses many classes a little needs half the slabs and system pages. Keeps
// the alignment of class `c`; nullptr if there is no such slab.
void* ThreadHeap::take_from_larger_class(int c) {
  if (fallback_objects[c] >= kMaxFallbackObjects) return nullptr;
  uint32_t align = kSizeClasses.size[c] & (~kSizeClasses.size[c] + 1);
  for (int larger = c + 1; larger <= c + 2 && larger < kClasses; ++larger) {
    Bin& bin = bins[larger];
    if (bin.current == nullptr || (kSizeClasses.size[larger] & (align - 1)) != 0) continue;
    void* p = heads[larger];
    bool sampled = p == nullptr && bin.sample_points != nullptr;
    if (p == nullptr && !sampled && bin.current->carved == bin.current->capacity) continue;
    ++fallback_objects[c];
    if (sampled) return take_sampled(larger);
    return p == nullptr ? carve(larger) : serve(larger, p);
  }
  fallback_objects[c] = kMaxFallbackObjects;
  return nullptr;
}

void* ThreadHeap::refill(int c) {
  HeapCounters::add(counters.refills, 1);
  if (kChecked && counters.refills.load(std::memory_order_relaxed) % 256 == 0) check_heap(*this);
  // A signal handler may have filled it meanwhile.
  if (heads[c] != nullptr) return serve(c, heads[c]);
  Bin& bin = bins[c];
  if (bin.sample_points != nullptr) return take_sampled(c);
  deferred[c] = 0;
  for (;;) {
    Slab* current = bin.current;
    if (current != nullptr)
      if (void* list = remote_take(current)) return hand_out(c, list, slab_bytes(current));
    if (Slab* s = usable_partial(c)) {
      if (current != nullptr) {
        if (current->carved < current->capacity) {
          current->list = &current->free;
          current->used = current->carved;
          join_partial(current);
        } else {
          move_to_full_list(c);
        }
      }
      size_t bytes = free_bytes(s);
      if (void* list = attach(c, s)) return hand_out(c, list, bytes);
      continue;
    }
    if (current != nullptr) {
      if (current->carved < current->capacity) return carve(c);
      move_to_full_list(c);
    } else if (void* p = take_from_larger_class(c)) {
      return p;
    }
    Slab* s = central_pop(c);
    if (s != nullptr)
      s->set_owner(this);
    else
      s = fresh_slab(c);
    if (s == nullptr) return nullptr;
    size_t bytes = free_bytes(s);
    if (void* list = attach(c, s)) return hand_out(c, list, bytes);
  }
}

// --- the slow paths, each guarded against a signal handler that interrupts it (SlowPath)

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
  if (size_bytes > kSmallMax) purge_tick();
  if (p == nullptr && size_bytes < size_t{1} << (kAddressBits - 1)) {
    if (release_all_memory()) p = allocate();
    if (p == nullptr && call_out_of_memory_callback(size_bytes)) p = allocate();
  }
  if (unlikely(limit::crossed())) relieve_pressure();
  return or_enomem(p);
}

// What malloc_slow() returns for a slot with a sample point.
LARDER_SLOW void* sample_object(SamplePoint* point, size_t size_bytes, void* caller) {
  // The slot may be of a larger class, by fallback.
  int c = page_map.find(point->slot)->size_class;
  return sample_small(point, c, size_bytes, caller, countdown_of_thread());
}

LARDER_SLOW void* shared_malloc(int c, size_t size_bytes, void* caller) {
  ThreadHeap* heap = shared_heap();
  if (heap == nullptr) return nullptr;
  SamplePoint* point = nullptr;
  void* p = nullptr;
  {
    LockGuard guard(heap->lock);
    p = heap->heads[c];
    if (p != nullptr) {
      heap->heads[c] = next_of(p);
      clear_link(p);
      return p;
    }
    p = heap->refill(c);
    point = std::exchange(heap->sampled_point, nullptr);
  }
  return point == nullptr ? p : sample_object(point, size_bytes, caller);
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

void slab_free_slow(void* p, Slab* s) {
  if (ThreadHeap* heap = thread_heap()) {
    if (s->owner() != kUnowned || !remote_try_adopt(s)) return remote_free(heap, s, p);
    HeapCounters::add(heap->counters.adopted_slabs, 1);
    heap->adopt(s);
    return heap->push_local(s, p);
  }
  // A thread without a heap frees into the CPU's shared heap if that owns the slab, else by a push.
  ThreadHeap* heap = shared_heap();
  if (heap == nullptr) return;
  LockGuard guard(heap->lock);
  if (s->owner() == heap)
    heap->push_local(s, p);
  else
    remote_free(heap, s, p);
}

void free_in_signal(void* p, Slab* s) {
  // These take no lock.
  if (s->kind == Kind::kEmergency) return large_free(s);
  if (s->kind == Kind::kSampled) return sample_free_in_signal(p);
  if (s->kind != Kind::kSlab || !remote_push_from_signal(s, p))
    stats::add(stats::kLeakedInSignal, 1);
}

LARDER_WARM void* malloc_large_slow(size_t size_bytes) {
  SlowPath path;
  if (!path.entered()) return or_enomem(emergency_alloc(size_bytes, 16));
  void* caller = __builtin_return_address(0);
  ThreadHeap* heap = size_bytes <= kSpanMax ? thread_heap() : nullptr;
  void* p = nullptr;
  if (heap != nullptr && heap->last_freed_fits(size_bytes)) {
    p = heap->take_last_freed()->object();
  } else if (heap != nullptr) {
    unsigned pages = span_pages(size_bytes);
    heap->evict_last_freed();
    if (Slab* span = heap->take_cached_span(pages))
      p = large_reuse(span, size_bytes);
    else
      heap->raise_cache_limit(pages * kPageBytes);
  }
  if (size_bytes > kSpanMax)
    if (Slab* s = large_take_last_freed(size_bytes)) p = s->object();
  bool zero = false;
  if (p == nullptr)
    p = allocate_with_retry(size_bytes, [&] { return large_alloc(size_bytes, 16, &zero); });
  // The cached memory is dirty, a clean span would raise the peak: use the cache up first.
  if (p != nullptr && heap != nullptr && zero && heap->cached_bytes() != 0) {
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

void* malloc_slow(size_t size_bytes, size_t c) {
  thread_state.last = ThreadState::kNoLast;
  SlowPath path;
  if (!path.entered()) {
    // The alignment of the class.
    size_t size = kSizeClasses.size[c];
    size_t align = size & (~size + 1);
    return or_enomem(emergency_alloc(size, align < 16 ? 16 : align));
  }
  void* caller = __builtin_return_address(0);
  return allocate_with_retry(kSizeClasses.size[c], [size_bytes, c, caller] {
    if (unlikely(sample_all)) return sample_exact(int(c), size_bytes, caller);
    ThreadHeap* heap = thread_heap();
    if (heap == nullptr) return shared_malloc(int(c), size_bytes, caller);
    void* p = heap->refill(int(c));
    if (likely(heap->sampled_point == nullptr)) return p;
    return sample_object(std::exchange(heap->sampled_point, nullptr), size_bytes, caller);
  });
}

void* malloc_large(size_t size_bytes) {
  ThreadHeap* heap = thread_state.heap;
  if (heap != nullptr && !thread_state.busy) {
    if (heap->last_freed_fits(size_bytes)) {
      if (heap->countdown.passes(size_bytes))
        return charge(heap->take_last_freed(), size_bytes, heap->countdown);
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
  unsigned early = purge_early_count();
  // The heap frees more than it allocates. Deferred frees might keep other slabs from becoming
  // empty.
  if (heap->emptied(s)) {
    heap->release_some_deferred();
    heap->purge_partial_if_shrinking();
  }
  follow_early_purge(heap, early);
}

namespace {

// Frees the slot of a sampled object, by a thread without a heap.
void free_slot_shared(SamplePoint* point) {
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

// Frees the object of a sample slab, then its slot.
LARDER_WARM void free_sampled(void* p, Slab* s) {
  SamplePoint* point = nullptr;
  int c = s->size_class;  // another thread may own the slab once the object is free
  {
    SlowPath path;
    if (!path.entered()) return free_in_signal(p, s);
    point = sample_free(s, p);
    if (point != nullptr && thread_heap() == nullptr) return free_slot_shared(point);
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
  ThreadHeap* heap = s->kind == Kind::kSpan ? thread_heap() : thread_state.heap;
  if (unlikely(s->sample_point != nullptr)) {
    sample_end(s->sample_point);
    sample_point_drop(std::exchange(s->sample_point, nullptr));
    if (s->kind == Kind::kSpan && heap != nullptr && heap->cache_last_freed(s)) return;
  }
  if (s->kind == Kind::kHuge && large_cache_last_freed(s)) return purge_wake();
  if (s->kind == Kind::kSpan && heap != nullptr && heap->cache_span(s)) return;
  if (heap != nullptr) heap->report_cached_bytes();
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
    if (s->kind == Kind::kSpan && heap->cache_last_freed(s)) return;
    if (s->kind == Kind::kHuge && large_cache_last_freed(s)) return purge_wake();
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
  SlowPath path;
  if (!path.entered()) return or_enomem(emergency_alloc(size_bytes, align));
  bool zero = false;
  void* p = allocate_with_retry(size_bytes, [&] { return large_alloc(size_bytes, align, &zero); });
  return charge_large(p, size_bytes, zero, __builtin_return_address(0));
}

void* zeroed_alloc(size_t size_bytes) {
  if (size_bytes <= kSmallMax) {
    void* p = malloc_fast(size_bytes);
    return p == nullptr ? nullptr : memset(p, 0, size_bytes);
  }
  SlowPath path;
  if (!path.entered()) return or_enomem(emergency_alloc(size_bytes, 16));
  bool zero = false;
  void* p = allocate_with_retry(size_bytes, [&] { return large_alloc(size_bytes, 16, &zero); });
  charge_large(p, size_bytes, true, __builtin_return_address(0));
  return p == nullptr || zero ? p : memset(p, 0, size_bytes);
}

size_t usable_size(const Slab* s) {
  return is_small(s) && !s->guarded ? kSizeClasses.size[s->size_class] : s->bytes - s->offset;
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
    heap->reset_cache_limit();
  }
  registry_release_unused();
  return purge_all();
}

}  // namespace larder
