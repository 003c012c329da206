#include "core/registry.h"

#include <errno.h>
#include <pthread.h>

#include <utility>

#include "base/layout.h"
#include "base/policy.h"
#include "base/stats.h"
#include "core/cpu_cache.h"
#include "core/meta.h"
#include "core/purge.h"
#include "larder/inline.h"
#include "os/options.h"
#include "os/os.h"

namespace larder {

namespace {

struct Registry {
  Lock lock;
  Lock reclaim;  // orders the threads that take an orphaned slab (remote.cc)
  ThreadHeap* heaps LARDER_GUARDED_BY(lock) = nullptr;   // of threads, by next
  ThreadHeap* unused LARDER_GUARDED_BY(lock) = nullptr;  // whose threads have ended, by next_unused
  size_t waiting_bytes LARDER_GUARDED_BY(lock) = 0;      // of all unused heaps
  uint64_t searched_ms LARDER_GUARDED_BY(lock) = 0;      // by find_leaked()
  std::atomic<size_t> in_use{0};  // written under the lock; relaxed: others read it as a hint
  pthread_key_t key = 0;
  bool has_key = false;
  std::atomic<ThreadHeap*> shared[kMaxShared] = {};
};
constinit Registry registry;

size_t max_heaps() {
  size_t configured = option(Option::kMaxHeaps);
  if (configured != 0) return configured;
  size_t by_cpus = kHeapsPerCpu * os::cpu_count();
  return by_cpus < kMinHeaps ? kMinHeaps : by_cpus;
}

ThreadHeap* new_heap() {
  auto* heap = static_cast<ThreadHeap*>(meta_alloc(sizeof(ThreadHeap), alignof(ThreadHeap)));
  if (heap != nullptr)
    for (Link& head : heap->own_heads) head = nullptr;
  return heap;
}

void count_in_use(ptrdiff_t change) {
  registry.in_use.store(registry.in_use.load(std::memory_order_relaxed) + size_t(change),
                        std::memory_order_relaxed);
}

// A thread may get its first heap in a signal handler or key destructor at its very end, and
// never gives it up. Such leaked heaps stop counting against the bound; nothing else changes: their
// lists went with the thread, and after a raw fork a heap's number may not be its thread's. Costs a
// system call for each assigned heap.
void find_leaked() LARDER_REQUIRES(registry.lock) {
  uint64_t now = os::now_ms();
  if (now - registry.searched_ms < kSearchMs) return;
  registry.searched_ms = now;
  for (ThreadHeap* heap = registry.heaps; heap != nullptr; heap = heap->registered.next) {
    if (!heap->registered.assigned || heap->registered.leaked || heap->registered.thread == 0)
      continue;
    if (os::is_thread(heap->registered.thread)) continue;
    heap->registered.leaked = true;
    count_in_use(-1);
  }
}

bool all_in_use() { return registry.in_use.load(std::memory_order_relaxed) >= max_heaps(); }

// The heap is the thread's before it is assigned: a fork in a signal handler must not abandon it.
ThreadHeap* take_heap(ThreadState& t) LARDER_REQUIRES(registry.lock) {
  if (all_in_use() && t.phase == ThreadState::kNew) find_leaked();
  if (all_in_use()) return nullptr;
  ThreadHeap* heap = registry.unused;
  if (heap != nullptr) {
    registry.unused = heap->registered.next_unused;
    registry.waiting_bytes -= std::exchange(heap->registered.waiting_bytes, 0);
  } else {
    heap = new_heap();
    if (heap == nullptr) return nullptr;
    stats::add(stats::kHeaps, 1);
    heap->registered.next = registry.heaps;
    registry.heaps = heap;
  }
  heap->move_in(t);
  heap->registered.thread = os::system_thread_id();
  heap->registered.assigned = true;
  count_in_use(1);
  return heap;
}

LARDER_SLOW ThreadHeap* thread_heap_slow() {
  ThreadState& t = thread_state;
  if (t.phase == ThreadState::kTornDown || sample_all) return nullptr;
  if (t.phase == ThreadState::kSurplus && all_in_use()) return nullptr;
  ThreadHeap* heap;
  {
    LockGuard guard(registry.lock);
    heap = take_heap(t);
  }
  bool is_known = t.phase == ThreadState::kSurplus && heap == nullptr;
  t.phase = heap != nullptr ? ThreadState::kHasHeap : ThreadState::kSurplus;
  if (is_known) return nullptr;
  // A thread without a heap sets the key, too: a signal handler that allocates at the thread's very
  // end must not get a heap. glibc keeps the first 32 keys in the thread itself. With more this
  // call allocates, and the slow path that it goes through uses an emergency mapping.
  int saved_errno = errno;
  if (registry.has_key) pthread_setspecific(registry.key, &thread_state);
  errno = saved_errno;
  return heap;
}

void on_thread_exit(void*) { thread_exit(); }

}  // namespace

constinit const HeapsLayout heaps_layout = {
    .first = static_cast<const void*>(&registry.heaps),
    .shared = &registry.shared,
    .most_shared = kMaxShared,
    .heap_bytes = offsetof(ThreadHeap, remote),
    .next = offsetof(ThreadHeap, registered.next),
    .heads = offsetof(ThreadHeap, heads),
    .bins = offsetof(ThreadHeap, bins),
    .bin_bytes = sizeof(Bin),
    .bin_points = offsetof(Bin, sample_points),
    .cached_span_bytes = offsetof(ThreadHeap, cache.span_bytes),
    .refills = offsetof(ThreadHeap, counters.refills),
    .fresh_slabs = offsetof(ThreadHeap, counters.fresh_slabs),
    .remote_frees = offsetof(ThreadHeap, counters.remote_frees),
    .orphaned = offsetof(ThreadHeap, registered.orphaned),
    .assigned = offsetof(ThreadHeap, registered.assigned),
    .pending = offsetof(ThreadHeap, remote.slots),
    .pending_count = kRemoteSlots,
    .pending_bytes = sizeof(RemoteCache::Slot),
    .pending_slab = offsetof(RemoteCache::Slot, slab),
    .pending_head = offsetof(RemoteCache::Slot, head),
    .pending_objects = offsetof(RemoteCache::Slot, count),
    .inlined = offsetof(ThreadHeap, inlined),
    .inlined_classes = LARDER_INLINE_CLASSES,
    .inlined_newer = offsetof(larder_inline_state, newer),
    .inlined_older = offsetof(larder_inline_state, older),
    .cpu_caches = &cpu_caches.of,
    .most_cpu_caches = kMaxShared,
    .cpu_cache_objects = offsetof(CpuCache, objects),
    .cpu_cache_room = kMaxDeferred};

ThreadHeap* thread_heap() {
  ThreadHeap* heap = thread_state.heap;
  return likely(heap != nullptr) ? heap : thread_heap_slow();
}

ThreadHeap* shared_heap() {
  std::atomic<ThreadHeap*>& slot = registry.shared[os::cpu() % kMaxShared];
  ThreadHeap* heap = slot.load(std::memory_order_acquire);
  if (heap != nullptr) return heap;
  LockGuard guard(registry.lock);
  heap = slot.load(std::memory_order_relaxed);  // the lock orders it
  if (heap == nullptr && (heap = new_heap()) != nullptr) {
    heap->shared = true;
    heap->heads = heap->own_heads;
    slot.store(heap, std::memory_order_release);
  }
  return heap;
}

void thread_exit() {
  ThreadState& t = thread_state;
  ThreadHeap* heap = t.heap;
  if (heap == nullptr) {
    t.phase = ThreadState::kTornDown;
    return;
  }
  bool is_last_but_one;
  t.busy = true;
  t.phase = ThreadState::kTornDown;
  heap->move_out(t);
  size_t bytes = heap->owned_bytes();
  if (bytes > kWaitingBytes) {
    heap->release_all();
    bytes = 0;
  }
  {
    LockGuard guard(registry.lock);
    // Enough memory waits already.
    if (registry.waiting_bytes + bytes > kAllWaitingBytes) {
      heap->release_all();
      bytes = 0;
    }
    heap->registered.waiting_bytes = bytes;
    registry.waiting_bytes += bytes;
    heap->registered.assigned = false;
    heap->registered.next_unused = registry.unused;
    registry.unused = heap;
    if (!std::exchange(heap->registered.leaked, false)) count_in_use(-1);
    is_last_but_one = registry.in_use.load(std::memory_order_relaxed) == 1;
  }
  if (is_last_but_one && may_purge_after_threads()) {
    registry_release_unused();
    purge_all();
  }
  t.busy = false;
}

bool registry_release_unused() {
  LockGuard guard(registry.lock);
  bool any = false;
  for (ThreadHeap* heap = registry.unused; heap != nullptr; heap = heap->registered.next_unused) {
    if (heap->owned_bytes() == 0) continue;
    heap->release_all();
    registry.waiting_bytes -= std::exchange(heap->registered.waiting_bytes, 0);
    any = true;
  }
  return any;
}

void registry_init() {
  if (registry.has_key || pthread_key_create(&registry.key, on_thread_exit) != 0) return;
  registry.has_key = true;
  os::learn_system_thread_ids();
  if (thread_state.heap == nullptr) return;
  thread_state.heap->registered.thread = os::system_thread_id();
  pthread_setspecific(registry.key, &thread_state);
}

HeapCounts heap_counts() {
  HeapCounts counts = {};
  registry_for_each([&counts](const ThreadHeap& heap) {
    counts.shared += heap.shared ? 1 : 0;
    // Relaxed: figures of other threads.
    counts.cached_bytes += __atomic_load_n(&heap.cache.span_bytes, __ATOMIC_RELAXED) +
                           __atomic_load_n(&heap.cache.empty_bytes, __ATOMIC_RELAXED);
    const HeapCounters& c = heap.counters;
    counts.refills += c.refills.load(std::memory_order_relaxed);
    counts.fresh_slabs += c.fresh_slabs.load(std::memory_order_relaxed);
    counts.adopted_slabs += c.adopted_slabs.load(std::memory_order_relaxed);
    counts.remote_frees += c.remote_frees.load(std::memory_order_relaxed);
    counts.remote_pushes += c.remote_pushes.load(std::memory_order_relaxed);
  });
  LockGuard guard(registry.lock);
  counts.in_use = registry.in_use.load(std::memory_order_relaxed);
  return counts;
}

void registry_for_each(FunctionRef<void(ThreadHeap&)> visit) {
  LockGuard guard(registry.lock);
  for (ThreadHeap* heap = registry.heaps; heap != nullptr; heap = heap->registered.next)
    visit(*heap);
  for (auto& slot : registry.shared) {
    ThreadHeap* heap = slot.load(std::memory_order_acquire);
    if (heap == nullptr) continue;
    LockGuard shared(heap->lock);
    visit(*heap);
  }
}

void registry_for_each_lock(void (*visit)(Lock&)) {
  visit(registry.lock);
  for (auto& slot : registry.shared)
    if (ThreadHeap* heap = slot.load(std::memory_order_acquire)) visit(heap->lock);
  visit(registry.reclaim);
}

// The child has one thread.
void registry_abandon_others() LARDER_UNCHECKED {
  size_t in_use = 0;
  for (ThreadHeap* heap = registry.heaps; heap != nullptr; heap = heap->registered.next) {
    if (!heap->registered.assigned) continue;
    if (heap == thread_state.heap) {
      heap->registered.thread = os::system_thread_id();
      heap->registered.leaked = false;
      ++in_use;
    } else {
      heap->registered.assigned = false;
      heap->registered.orphaned = true;
    }
  }
  registry.in_use.store(in_use, std::memory_order_relaxed);
  cpu_caches_forget();
  forget_caches_but(thread_state.heap != nullptr ? &thread_state.heap->cache : nullptr);
}

Lock& reclaim_lock() { return registry.reclaim; }

}  // namespace larder
