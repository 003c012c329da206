#include "core/remote.h"

#include <utility>

#include "base/policy.h"
#include "core/central.h"
#include "core/registry.h"
#include "core/thread_heap.h"

namespace larder {

namespace {

bool owner_is_orphaned(const Slab* s) {
  ThreadHeap* owner = s->owner();
  return owner != kUnowned && owner->registered.orphaned;
}

void free_locally(ThreadHeap* heap, Slab* s, const Chain& chain) {
  void* next = nullptr;
  for (void* p = chain.head;; p = next) {
    next = next_of(p);
    bool last = p == chain.tail;
    heap->push_local(s, p);
    if (last) return;
  }
}

// Takes an orphaned slab, as a full one, from the heap that fork abandoned. False: another thread
// did.
bool reclaim(ThreadHeap* heap, Slab* s) {
  LockGuard guard(reclaim_lock());
  if (!owner_is_orphaned(s)) return false;
  s->carved = s->capacity;
  s->purged_at = 0;
  s->decommitted = 0;
  heap->adopt(s);
  return true;
}

enum class Attempt { kDone, kRetry };

Attempt try_push(ThreadHeap* heap, Slab* s, const Chain& chain) {
  if (s->owner() == heap || (owner_is_orphaned(s) && reclaim(heap, s))) {
    free_locally(heap, s, chain);
    return Attempt::kDone;
  }
  switch (remote_state(s)) {
    case kOwned:
      if (owner_is_orphaned(s) || !remote_try_push(s, chain)) return Attempt::kRetry;
      HeapCounters::add(heap->counters.remote_pushes, 1);
      HeapCounters::add(heap->counters.remote_frees, chain.count);
      return Attempt::kDone;
    case kFull:
      if (!remote_try_adopt(s)) return Attempt::kRetry;
      HeapCounters::add(heap->counters.adopted_slabs, 1);
      // A shared heap owns what threads that share use: others that free there, before they have a
      // heap or after its end, would gather slabs in it.
      if (heap->shared && thread_state.phase != ThreadState::kSurplus) {
        heap->adopt_to_central(s, chain);
      } else {
        heap->adopt(s);
        free_locally(heap, s, chain);
      }
      return Attempt::kDone;
    default:
      return central_free(s, chain) ? Attempt::kDone : Attempt::kRetry;
  }
}

void push_slot(ThreadHeap* heap, RemoteCache::Slot* slot) {
  Slab* s = slot->slab;
  Chain chain = {slot->head, slot->tail, slot->count};
  heap->remote.pending_bytes -= size_t{slot->count} * kSizeClasses.size[s->size_class];
  slot->slab = nullptr;
  remote_push(heap, s, chain);
}

uint32_t batch_limit(size_t object_size) {
  size_t n = kPushBytes / object_size;
  return uint32_t(n < kMinPushed ? kMinPushed : n > kMaxPushed ? kMaxPushed : n);
}

}  // namespace

void remote_push(ThreadHeap* heap, Slab* s, const Chain& chain) {
  while (try_push(heap, s, chain) == Attempt::kRetry) {
  }
}

void remote_free(ThreadHeap* heap, Slab* s, void* p) {
  RemoteCache& cache = heap->remote;
  size_t object_size = kSizeClasses.size[s->size_class];
  size_t hash = (uintptr_t(s) >> 7) * 0x9E3779B97F4A7C15ull >> 56;
  static_assert(kRemoteSlots == 256, "the hash has eight bits");
  RemoteCache::Slot* slot = &cache.slots[hash];
  if (slot->slab == s) {
    set_next(p, slot->head);
    slot->head = p;
    ++slot->count;
    cache.pending_bytes += object_size;
    if (slot->count >= slot->limit) push_slot(heap, slot);
  } else {
    if (slot->slab != nullptr) push_slot(heap, slot);
    if (remote_state(s) == kFull || owner_is_orphaned(s)) return remote_push(heap, s, {p, p, 1});
    set_next(p, nullptr);
    *slot = {s, p, p, 1, batch_limit(object_size)};
    cache.taken[hash / 64] |= uint64_t{1} << hash % 64;
    cache.pending_bytes += object_size;
  }
  if (cache.pending_bytes > kPendingBytes) remote_flush(heap);
}

void remote_flush(ThreadHeap* heap) {
  if (heap->remote.pending_bytes == 0) return;
  RemoteCache& cache = heap->remote;
  for (size_t word = 0; word < kRemoteSlots / 64; ++word) {
    for (uint64_t taken = std::exchange(cache.taken[word], 0); taken != 0; taken &= taken - 1) {
      RemoteCache::Slot* slot = &cache.slots[word * 64 + size_t(__builtin_ctzll(taken))];
      if (slot->slab != nullptr) push_slot(heap, slot);
    }
  }
}

bool remote_push_without_heap(Slab* s, void* p) {
  while (remote_state(s) == kOwned && !owner_is_orphaned(s))
    if (remote_try_push(s, {p, p, 1})) return true;
  return false;
}

}  // namespace larder
