// Thread heap: the fast path of malloc and free, and the slow path behind it.
//
//   malloc ── pop heads[class] ──► refill: remote frees of the current slab
//                                       ► a slab with free objects    (this heap's, then central)
//                                       ► carve more of the current slab
//                                       ► a fresh slab                (cached, then page heap)
//   free ──── slab.owner == my heap? ── push to *slab.list ──► used == 0: cache or release
//                    │                   └── looks free, or no object: misused
//                    └── no ──► remote_free, large_free, foreign_free
//
// Ownership: all of it belongs to one thread or, for a shared heap, to the holder of `lock`.
// Threads beyond the bound, and threads whose heap is torn down, use the shared heap of their CPU.
//
// Invariants:
//   A slab that the heap owns is either a bin's current, or in one of a bin's partial list,
//   the cache (used == 0), or `full`. Other full slabs are unowned.
// Bounds: those of Bin, FullList, HeapCache and RemoteCache.
#pragma once

#include <utility>

#include "base/policy.h"
#include "base/size_class.h"
#include "core/bin.h"
#include "core/full_list.h"
#include "core/heap_cache.h"
#include "core/page_map.h"
#include "core/remote.h"
#include "core/segment.h"
#include "core/slab.h"
#include "os/lock.h"

struct larder_inline_state;

namespace larder {

// The owner word of a thread without a heap: equals no slab's owner, not even the null slab's.
inline constexpr uintptr_t kNoHeap = 1;

// All of a thread's static TLS: 592 bytes, so that a dlopened Larder finds room for it.
//
// `last` is the object that malloc handed out last, from *last_head; kNoLast once the heap adopts a
// slab or releases deferred frees. A free of `last`, whose slab the heap owns, pushes to
// *last_head. The owner test comes first: another thread may have freed the object, and its address
// may be another object's. The processor predicts the comparison, so that the next malloc does not
// wait for the page map.
struct ThreadState {
  // No object's address, and not the null pointer that free() accepts.
  static constexpr uintptr_t kNoLast = 1;
  enum Phase : uint8_t { kNew, kHasHeap, kSurplus, kTornDown };
  Link heads[kClasses];
  uintptr_t last = kNoLast;
  Link* last_head = nullptr;
  ThreadHeap* heap = nullptr;
  uintptr_t owner = kNoHeap;  // the heap, as in Slab::owner_
  Phase phase = kNew;
  bool busy = false;  // in a slow path: a signal handler must not touch the heap
  uint8_t frees = 0;  // while it has no heap, up to kFreesWithoutHeap
  uint32_t id = 0;    // thread_id(); 0 until first used

  constexpr ThreadState() {
    for (Link& head : heads) head = nullptr;
  }
};

extern constinit thread_local ThreadState thread_state
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// This process was forked from a signal handler while other threads held locks. What these guard is
// unusable: every object is a mapping of its own.
extern bool torn_by_fork;

// Written by the heap's thread alone, read by any. Relaxed: statistics.
struct HeapCounters {
  std::atomic<uint64_t> refills;
  std::atomic<uint64_t> fresh_slabs;  // from the page heap
  std::atomic<uint64_t> adopted_slabs;
  std::atomic<uint64_t> remote_frees;   // objects
  std::atomic<uint64_t> remote_pushes;  // atomic operations for remote_frees

  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

using ClassSet = PageSet;
static_assert(kClasses <= kPagesPerSegment, "a set of classes is one of bits");

// Classes that are looked through round robin.
struct ClassesInTurn {
  ClassSet set;  // bit c: class c may be worth a look
  int last;

  void insert(int c) { set |= ClassSet{1} << c; }
  void remove(int c) { set &= ~(ClassSet{1} << c); }
  bool contains(int c) const { return (set >> c & 1) != 0; }
  // The next class of `todo`, which is not empty.
  int turn_to(ClassSet todo) {
    ClassSet ahead = todo >> last << last;
    return last = first_page(ahead != 0 ? ahead : todo);
  }
};

// What the registry knows of a heap.
struct Registered {
  ThreadHeap* next;
  ThreadHeap* next_unused;
  size_t waiting_bytes;  // owned when its thread ended
  int thread;            // system_thread_id() of its thread, or 0
  bool assigned;         // to a living thread
  bool leaked;           // its thread has ended without giving it up, as far as known
  bool orphaned;         // abandoned in fork's child
};

struct ThreadHeap {
  Link* heads;
  Bin bins[kClasses];
  FullList full;
  HeapCache cache;
  ClassesInTurn with_partial;   // bins[c].partial may not be empty
  ClassesInTurn with_deferred;  // bins[c].deferred may not be 0
  size_t emptied_bytes;         // of slabs that became empty, minus those needed since; or 0
  int purge_class;              // where purge_partial() continues
  HeapCounters counters;
  Countdown countdown;           // to the next sample point
  SamplePoint* sampled_point;    // of the object that refill() has just returned, or nullptr
  void* carved_clean;            // the object that was carved last, if its memory was clean
  larder_inline_state* inlined;  // the thread's cache for inlined code, or nullptr (inline.cc)
  bool shared;
  Lock lock;  // guards a shared heap; any other belongs to its thread
  Registered registered;
  // Last: most threads never touch what follows.
  RemoteCache remote;
  Link own_heads[kClasses];  // while no thread has the heap

  // REQUIRES: heads[c] is empty. An object of the class; nullptr without memory. If its slot has a
  // sample point, sampled_point is set and the caller samples the object.
  void* refill(int c);
  // The same where the first partial slab or a cached one has free objects on which no sample point
  // falls: most refills. Else nullptr, and nothing is changed.
  void* refill_quickly(int c);
  void push_local(Slab* s, void* p);
  // Keeps a freed object of an unowned slab for the next malloc of its class, so that the slab need
  // not be adopted. False: enough frees are deferred.
  bool defer_free(Slab* s, void* p);
  // Frees the deferred objects of the class into their slabs; defers no more until the next refill.
  void release_deferred(int c);
  // Frees what inlined code caches of the class into the slabs.
  void release_inlined(int c);
  // Frees a list of objects that are in use for their slabs.
  void free_list(void* list);
  // release_deferred() for a few classes, round robin; for all.
  void release_some_deferred();
  void release_all_deferred();
  // The heap becomes the owner of a full slab. A heap that adopts and does not allocate passes
  // slabs on through the central list.
  void adopt(Slab* s);
  // Like adopt(), with the objects of `chain` free; the slab goes to the central list.
  void adopt_to_central(Slab* s, const Chain& chain);
  // REQUIRES: used == 0. A slab of the full list becomes partial: false. A partial slab is cached
  // or released: true.
  bool emptied(Slab* s);
  // The first of these two cases.
  bool reopened(Slab* s);
  // The heap's lists move to the thread, or away from it. A heap without a thread keeps what it
  // owns, if that is little, for the next thread.
  void move_in(ThreadState& t);
  void move_out(ThreadState& t);
  // Touched bytes of the slabs and spans that it owns or caches. O(classes).
  size_t owned_bytes() const;
  // Gives up all slabs: empty ones to the page heap, others to the central lists.
  void release_all();
  // Nothing stays deferred, pending, or in the one-entry cache.
  void flush();
  // Releases cached slabs and spans. Returns bytes.
  size_t trim();
  // A heap that frees much more than it allocates purges its partial slabs, too, some at a time,
  // until it needs a new one or has purged all that it can.
  void purge_if_shrinking();
  bool is_shrinking() const { return emptied_bytes >= kSlabPurgeAfterBytes; }
  // At one refill in kRefillsAPurge.
  bool is_time_to_purge() const {
    return counters.refills.load(std::memory_order_relaxed) % kRefillsAPurge == 0;
  }
  // Until end_us, or through all slabs. Whether there is more to do.
  bool purge_partial(uint64_t end_us);
  // Takes the remote frees of partial slabs: of all; of a few, round robin. A slab of a class that
  // the heap no longer allocates would otherwise never become empty.
  void collect();
  void collect_some();

  // --- sample points (sample_points.cc)
  // The slot of a sampled object is free. The point stays if the slot is the next to be handed out.
  void free_sampled_slot(int c, SamplePoint* point);
  // Frees a sampled object that inlined code has cached.
  void forget_sampled(Slab* s, void* p);
  // Whether the point of a slot that may be reused at once stays.
  bool keep_sample_point(SamplePoint* point);

 private:
  void* serve(int c, void* list);
  void* hand_out(int c, void* list, size_t bytes);
  LARDER_WARM void* hand_out_sampled(int c, void* list, size_t bytes);
  void* take_sampled(int c);
  // Drops the sample points and returns the whole list.
  void* take_unsampled_list(int c);
  void* attach(int c, Slab* s);
  void join_partial(Slab* s);
  void put_current_away(int c);
  void disown_oldest_full();
  Slab* usable_partial(int c);
  Slab* fresh_slab(int c);
  void* carve(int c);
  void disown(Slab* s);
  void take_remote(Slab* s);
  void cache_empty_slab(Slab* s);
  void note_needed(const Slab* empty);
};

// In the constructor: the time for slab purges counts from here.
void start_slab_purge_clock();

inline Countdown* countdown_of_thread() {
  return thread_state.heap != nullptr ? &thread_state.heap->countdown : nullptr;
}

// Whether a large object gets a sample point: drawn by the thread's heap, if it has one.
inline bool countdown_hits(size_t object_bytes, float* expected) {
  ThreadHeap* heap = thread_state.heap;
  return heap != nullptr ? heap->countdown.hits(object_bytes, expected)
                         : sample_hits(object_bytes, expected);
}

// By the front: how far to carve, in bytes from the slab's base, at least to `end`.
size_t carve_end(const Slab* s, size_t end);
// By the front: a list of `count` objects that the slab has not had yet, the first of them at
// `first`.
void* link_carved(Slab* s, char* first, uint32_t count);

// The slow paths behind the entry points. `c` is the size class.
LARDER_WARM void* malloc_slow(size_t size_bytes, size_t c);
LARDER_WARM void* malloc_large(size_t size_bytes);
LARDER_WARM void free_slow(void* p, Slab* s) noexcept;
LARDER_WARM void free_empty(Slab* s) noexcept;
// An object that looks_misused(), of a slab that the heap owns.
LARDER_SLOW void free_suspect(void* p, Slab* s) noexcept;
// Frees what signal handlers could not (sample_free_in_signal).
void free_left_by_signals();

LARDER_FAST void* malloc_small(size_t c, size_t size_bytes) {
  ThreadState* t = &thread_state;
  __asm__("" : "+r"(t));
  Link* head = &t->heads[c];
  // One register for both: otherwise the store is not forwarded to the next load at once.
  __asm__("" : "+r"(head));
#if defined(__x86_64__)
  void* p;  // the return register
  bool is_empty;
  __asm__("mov %2, %0\n\txor %3, %0" : "=a"(p), "=@ccz"(is_empty) : "m"(*head), "m"(link_tag));
#else
  void* p = *head;
  bool is_empty = p == nullptr;
#endif
  if (unlikely(is_empty)) return malloc_slow(size_bytes, c);
  *head = link_of(p);
  clear_link(p);
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

// REQUIRES: the thread's heap owns s, and p is in use.
LARDER_FAST void push_to_owned(void* p, Slab* s) {
  Link* list = s->list;
  link_of(p) = *list;
  *list = p;
  if (unlikely(--s->used == 0)) free_empty(s);
}

// REQUIRES: offset == map->offset_at(p).
LARDER_FAST void free_at(void* p, const ProcessPageMap* map, uintptr_t offset) {
  // Formed where it is needed: not for the object that malloc returned last, which needs no other
  // check, either, until it is freed.
  auto slab = [map, offset] {
    const ProcessPageMap* same_map = map;
    uintptr_t same_offset = offset;
    __asm__("" : "+r"(same_map), "+r"(same_offset));
    return same_map->slab_at(same_offset);
  };
  if (unlikely(!map->slab_at(offset)->owned_by(thread_state.owner))) return free_slow(p, slab());
  if (uintptr_t(p) == thread_state.last) {
    Link* head = thread_state.last_head;
    link_of(p) = *head;
    *head = p;
    thread_state.last = ThreadState::kNoLast;
    return;
  }
  Slab* s = slab();
  if (unlikely(!at_object(p, s) || has_link(p))) return free_suspect(p, s);
  push_to_owned(p, s);
}

// Without a check. REQUIRES: p is in use.
LARDER_FAST void free_in_use(void* p, Slab* s) {
  if (unlikely(!s->owned_by(thread_state.owner))) return free_slow(p, s);
  thread_state.last = ThreadState::kNoLast;
  push_to_owned(p, s);
}

LARDER_FAST void free_fast(void* p) {
  const ProcessPageMap* map = page_map.in_register();
  free_at(p, map, map->offset_at(p));
}

// An object of at least size_bytes at a multiple of align, a power of two.
void* aligned_alloc_any(size_t size_bytes, size_t align);
// Like malloc; the content is zero.
void* zeroed_alloc(size_t size_bytes);
// Whether an object may stay where it is: a small shrink is not worth a copy (kShrinkShare).
LARDER_FAST bool serves(size_t have_bytes, size_t size_bytes) {
  return size_bytes <= have_bytes && size_bytes >= have_bytes - have_bytes / kShrinkShare;
}
// REQUIRES: size_bytes != 0, p is Larder's; an object in a slab does not fit where it is.
[[gnu::nonnull]] void* resize(void* p, Slab* s, size_t size_bytes);
// In place or by moving system pages; at_limit, where a copy was refused, by pieces, too. nullptr:
// it must be copied.
void* resize_without_copy(void* p, Slab* s, size_t size_bytes, bool at_limit);
size_t usable_size(const Slab* s);
// Purges everything that is free, the calling thread's cache first. Returns bytes.
size_t release_free_memory();

// Marks the thread as being in a slow path. entered() is false in a signal handler that interrupted
// one, because locks may be held and lists half changed; and in a child whose fork could not take
// every lock (fork.cc).
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
