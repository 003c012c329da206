// A thread's heap: the fast path of malloc and free, and what is behind it.
//
//   malloc ── pop heads[class] ──► refill: what others freed in the current slab
//                                       ► a slab with free objects    (this heap's, then central)
//                                       ► carve more of the current slab
//                                       ► a fresh slab                (kept empty, then page heap)
//   free ──── slab.owner == my heap? ── push to *slab.list ──► used == 0: keep or give back
//                    └── no ──► remote_free, large_free, foreign_free
//
// Ownership: everything here belongs to one thread, or, for shared heaps, to the holder of `lock`.
// Threads beyond the bound on heaps, and threads that have already torn theirs down, use the
// shared heap of their CPU.
// Invariants:
//   heads[c] lists objects of bins[c].current that are free, and held ones: objects that were freed
//   here, in use as far as their slab knows. A held object needs no slab until it is released.
//   The list is cut before each object with a mark (sampler.h), so that malloc ends up in refill
//   there: it goes on with bins[c].sample_points.
//   every slab owned by the heap is a bin's current, in a bin's partial list, in `empties`, or in
//   `full`: those that last had nothing left to give. Other full slabs are nobody's.
// Bounds: kept empty slabs <= LARDER_HEAP_EMPTY_KIB, kept spans likewise, and both together
// cache_extra beyond that, which is kCacheExtraBytes in all heaps; current slabs <= one a class,
// held objects <= kSizeClasses.hold a class, slabs set aside <= kMaxFull and kMaxFullBytes.
#pragma once

#include "base/policy.h"
#include "base/size_class.h"
#include "core/page_map.h"
#include "core/remote.h"
#include "core/sampler.h"
#include "core/segment.h"
#include "core/slab.h"
#include "os/lock.h"

struct larder_inline_state;

namespace larder {

inline constexpr uint8_t kDeferNoMore = 255;

// The owner of no slab, not even of the null slab: what a thread without a heap compares with.
inline constexpr uintptr_t kNoHeap = 1;

// All of a thread's static TLS: 560 bytes, so that a dlopened Larder still finds room for it.
//
// `last` is what malloc handed out last, and came from *last_head; kNoLast as soon as the
// heap takes in a slab or lets go of held objects. What is freed goes to that list if it is `last`
// and its slab is the heap's: another thread may have freed it, and its address may be another
// object's. The processor predicts that, and the next malloc need not wait for the look-up.
struct ThreadState {
  // No object, and not the null pointer that free() may be called with.
  static constexpr uintptr_t kNoLast = 1;
  enum Phase : uint8_t { kNew, kHasHeap, kSurplus, kTornDown };
  void* heads[kClasses] = {};
  uintptr_t last = kNoLast;
  void** last_head = nullptr;
  ThreadHeap* heap = nullptr;
  uintptr_t owner = kNoHeap;  // the heap, as its slabs have it
  Phase phase = kNew;
  bool busy = false;  // in a slow path; a signal handler that sees it must not touch the heap
  uint32_t id = 0;    // thread_id(), 0 until it is asked for
};

extern constinit thread_local ThreadState thread_state
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// This process is a child that was forked from a signal handler while other threads held locks:
// what they guard cannot be used any more, and every block is a mapping of its own.
extern bool torn_by_fork;

// Counted by the heap's thread alone, read by anyone.
struct HeapCounters {
  std::atomic<uint64_t> refills;
  std::atomic<uint64_t> fresh_slabs;  // from the page heap
  std::atomic<uint64_t> adopted_slabs;
  std::atomic<uint64_t> remote_frees;   // objects pushed to other heaps' slabs
  std::atomic<uint64_t> remote_pushes;  // atomic operations that these took

  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

using ClassSet = PageSet;
static_assert(kClasses <= kPagesPerSegment, "a set of classes is one of bits");

struct Bin {
  Slab* current;
  SamplePoint*
      sample_points;  // on free slots of the class: each begins a list that follows on heads[c]
  SlabList partial;
};

struct ThreadHeap {
  void** heads;
  Bin bins[kClasses];
  // Slabs of the class adopted, less those needed since, from 0 to kIdleAdoptions: tells a heap
  // that frees more than it allocates.
  uint8_t idle_adoptions[kClasses];
  uint8_t deferred[kClasses];        // put into heads[c] since it was last empty; or kDeferNoMore
  SlabList empties[kSlabPageSteps];  // used == 0, by log2(pages), most recently emptied first
  size_t empty_bytes;
  SlabList full;  // set aside, the longest first: used == 1, so that the first free is noticed
  size_t full_bytes;
  Slab* cached_spans[kMaxCachedSpanPages + 1];  // freed spans, by pages, linked by next
  size_t cached_span_bytes;
  // What it turns over: it may keep so much more than LARDER_HEAP_EMPTY_KIB (raise_cache_limit).
  size_t cache_extra;
  size_t evicted_bytes;       // for want of room here, and not asked for again yet
  size_t cache_extra_unused;  // least of what was beyond the option in the decay time, from
                              // cache_extra_since_ms
  uint64_t cache_extra_since_ms;
  size_t reported_cached_bytes;  // its share of stats::kHeapsCachedBytes
  size_t emptied_bytes;          // of slabs that became empty since one was needed
  int purge_class;               // where thin() goes on
  uint8_t cache_events;
  uint8_t fallback_objects[kClasses];  // objects that other classes lent; all of them once it has a
                                       // slab
  // The span that was freed last, without a look at cached_spans: it serves sizes of last_freed_min
  // + 0..last_freed_range.
  Slab* last_freed;
  void* last_freed_object;  // known without a look at the slab, which the free has just looked up
  size_t last_freed_min, last_freed_range;
  ClassSet partial_classes;   // bit c: bins[c].partial may not be empty
  ClassSet deferred_classes;  // bit c: held[c] may not be 0
  int collect_class;          // where the next collect_some() looks
  int release_class;          // and the next release_some_deferred()
  HeapCounters counters;
  Countdown countdown;         // to the next mark
  SamplePoint* sampled_point;  // on the object that refill() has just returned, if any
  bool shared;
  bool orphaned;  // its thread did not come along through fork
  Lock lock;      // shared heaps only
  bool assigned;  // to a living thread; this and what follows belongs to the registry
  bool leaked;    // to one that has ended without giving it up, as far as can be told
  int thread;     // system_thread_id() of the one that it is assigned to, or 0
  ThreadHeap* next;
  ThreadHeap* next_unused;
  size_t waiting_bytes;          // owned when its thread ended, for the registry
  larder_inline_state* inlined;  // what the thread keeps for inlined code, if anything (inline.cc)
  Slab* last_deferred_slab[kClasses];  // where the last held object of the class came from
  // What most threads never touch comes last.
  RemoteCache remote;
  void* own_heads[kClasses];  // of a heap that no thread has

  // An object of the class when heads[c] is empty; nullptr without memory. If it is marked, `taken`
  // is its mark, and the caller samples it.
  void* refill(int c);
  void push_local(Slab* s, void* p);
  // Takes a freed object of a slab that nobody owns, for the next malloc of its class, instead of
  // adopting the slab for its sake. False: enough are held.
  bool defer_free(Slab* s, void* p);
  // Held objects of the class go to their slabs, and no more are held until it is refilled.
  void release_deferred(int c);
  // What inlined code has kept of the class goes to its slabs, and no more is kept until it asks.
  void release_inlined(int c);
  // Freed objects that are in use as far as their slabs know, linked.
  void free_inlined(void* list);
  // Of a few classes, in turn; of all.
  void release_some_deferred();
  void release_all_deferred();
  // The slab was adopted: nothing of it is free. A heap that adopts and does not allocate passes
  // slabs on, through the central list.
  void adopt(Slab* s);
  // As adopt, with objects that are free; but the slab goes to the central list.
  void adopt_to_central(Slab* s, const Chain& chain);
  // used has fallen to zero. One that was set aside is partial from now on; a partial slab is kept
  // for other use, or given back: true.
  bool emptied(Slab* s);
  // The heap's lists move to the thread, or away from it: a heap whose thread has ended waits for
  // the next one with all that it has, if that is little.
  void move_in(ThreadState& t);
  void move_out(ThreadState& t);
  // Bytes of all slabs and spans that it owns or keeps, as far as they were touched. O(classes).
  size_t owned_bytes() const;
  // Lets go of every slab: free ones to the page heap, others for anyone to take.
  void release_all();
  // A freed span, if none is parked. False: it has to go elsewhere.
  bool cache_last_freed(Slab* s, void* p);
  // The parked span, if there is one and it fits.
  void* take_last_freed(size_t size_bytes);
  // Keeps it like others, or gives it back.
  void evict_last_freed();
  // A freed span that is worth keeping; false if it is not. A span of so many pages, or nullptr.
  bool cache_span(Slab* s);
  Slab* take_cached_span(unsigned pages);
  // Asked the page heap for so much: if it gave back as much before, it should have kept it.
  void raise_cache_limit(size_t bytes);
  // Keeps no more than any heap may.
  void reset_cache_limit();
  // For the purge, which is to know what is not really in use.
  void report_cached_bytes();
  size_t cached_bytes() const {
    return empty_bytes + cached_span_bytes + (last_freed != nullptr ? last_freed->bytes : 0);
  }
  // Whatever was freed is free for its slab, or on its way there: nothing held, pending or parked.
  void flush();
  // Gives wholly free slabs and kept spans back. Bytes.
  size_t trim();
  // More is being freed than allocated: once much is, pages within partial slabs go, too.
  void purge_partial_if_shrinking();
  // Until the time comes, or all slabs were looked at.
  void purge_partial(uint64_t end_us);
  // Takes in what others have freed in partial slabs: all of them; a few, in turn. Without it a
  // slab of a class that this heap allocates no more would never be found empty.
  void collect();
  void collect_some();

  // Marks (sample_points.cc).
  // A marked object is free. While it is the next to be handed out, its mark stays.
  void free_sampled_slot(int c, SamplePoint* point);
  // What inlined code has kept is free.
  void forget_sampled(Slab* s, void* p);
  // Whether the mark of a place that may be handed out again at once is to stay; that is bounded.
  bool keep_sample_point(SamplePoint* point);
  // As cache_last_freed(), with its mark; the marked span that is parked, if it fits.
  bool cache_last_freed_sampled(Slab* s, void* p);
  Slab* take_last_freed_sampled(size_t size_bytes);
  template <typename Visit>
  void for_each_listed(int c, Visit visit) const {
    for (void* p = heads[c]; p != nullptr; p = next_of(p)) visit(p);
    for (SamplePoint* point = bins[c].sample_points; point != nullptr; point = point->next)
      for (void* p = point->slot; p != nullptr; p = next_of(p)) visit(p);
  }

 private:
  void* serve(int c, void* list);
  void* hand_out(int c, void* list, size_t bytes);
  LARDER_WARM void* hand_out_sampled(int c, void* list, size_t bytes);
  void* take_sampled(int c);
  // Without marks the list is whole again.
  void* take_unsampled_list(int c);
  void* attach(int c, Slab* s);
  void join_partial(Slab* s);
  void move_to_full_list(int c);
  void take_off_full_list(Slab* s);
  void disown_oldest_full();
  Slab* usable_partial(int c);
  Slab* take_cached_slab(int c);
  Slab* fresh_slab(int c);
  void* carve(int c);
  void* take_from_larger_class(int c);
  void disown(Slab* s);
  void take_remote(Slab* s);
  void cache_empty_slab(Slab* s);
  Slab* pop_cached_span(unsigned pages);
  size_t cached_beyond_option() const;
  void lower_cache_limit(size_t bytes);
  void enforce_cache_limit();
  void note_taken();
};

// In the constructor: the time for purge_partial_if_shrinking() counts from here.
void start_slab_purge_clock();
// In a fork's child.
void forget_caches_of_others();

inline Countdown* countdown_of_thread() {
  return thread_state.heap != nullptr ? &thread_state.heap->countdown : nullptr;
}

// Whether a large object gets a mark: by the thread's own chance, if it has a heap.
inline bool countdown_hits(size_t object_bytes, double* expected) {
  ThreadHeap* heap = thread_state.heap;
  return heap != nullptr ? heap->countdown.hits(object_bytes, expected)
                         : sample_hits(object_bytes, expected);
}

// The slow paths behind the entry points. `c` is the size class.
LARDER_WARM void* malloc_slow(size_t size_bytes, size_t c);
LARDER_WARM void* malloc_large(size_t size_bytes);
LARDER_WARM void free_slow(void* p, Slab* s);
LARDER_WARM void free_empty(Slab* s);
// What signal handlers have left to be freed (sample_free_in_signal).
void free_left_by_signals();

LARDER_FAST void* malloc_small(size_t c, size_t size_bytes) {
  ThreadState* t = &thread_state;
  __asm__("" : "+r"(t));
  void** head = &t->heads[c];
  // By one register: only then is what was stored here forwarded to the next load at once.
  __asm__("" : "+r"(head));
#if defined(__x86_64__)
  void* p;  // in the register that it is returned in
  __asm__("mov %1, %0" : "=a"(p) : "m"(*head));
#else
  void* p = *head;
#endif
  if (unlikely(p == nullptr)) return malloc_slow(size_bytes, c);
  *head = next_of(p);
  t->last = uintptr_t(p);
  t->last_head = head;
  return p;
}

LARDER_FAST void* malloc_fast(size_t size_bytes) {
  if (likely(size_bytes <= 1024)) return malloc_small(class_of_small_size(size_bytes), size_bytes);
  if (likely(size_bytes <= kSmallMax))
    return malloc_small(class_of_medium_size(size_bytes), size_bytes);
  return malloc_large(size_bytes);
}

// s: the slab of p.
LARDER_FAST void free_fast(void* p, Slab* s) {
  if (unlikely(!s->owned_by(thread_state.owner))) return free_slow(p, s);
  if (uintptr_t(p) == thread_state.last) {
    void** head = thread_state.last_head;
    next_of(p) = *head;
    *head = p;
    return;
  }
  void** list = s->list;
  next_of(p) = *list;
  *list = p;
  if (unlikely(--s->used == 0)) free_empty(s);
}
LARDER_FAST void free_fast(void* p) { free_fast(p, page_map.find(p)); }

// An object of at least size_bytes at a multiple of align, a power of two.
void* aligned_alloc_any(size_t size_bytes, size_t align);
// As malloc; the content is zero.
void* zeroed_alloc(size_t size_bytes);
// REQUIRES: size_bytes != 0, p is Larder's.
[[gnu::nonnull]] void* resize(void* p, Slab* s, size_t size_bytes);
size_t usable_size(const Slab* s);
// Gives back what is free: the calling thread's kept slabs, then all else. Bytes.
size_t release_free_memory();

// Marks the thread as being in a slow path. entered() is false in a signal handler that
// interrupted one: locks may be held and lists be half changed below it. It is false for good in a
// child whose fork could not take every lock (fork.cc).
class SlowPath {
 public:
  SlowPath() : entered_(!thread_state.busy && !torn_by_fork) {
    if (entered_) thread_state.busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~SlowPath() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (entered_) thread_state.busy = false;
  }
  SlowPath(const SlowPath&) = delete;
  SlowPath& operator=(const SlowPath&) = delete;
  bool entered() const { return entered_; }

 private:
  bool entered_;
};

}  // namespace larder
