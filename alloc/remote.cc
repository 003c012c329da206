#include "remote.h"

#include "central.h"
#include "registry.h"
#include "stats.h"
#include "thread_heap.h"

namespace larder {

namespace {

constinit std::atomic<uint64_t> generation{0};

constexpr int kGenerationShift = 48;
constexpr uint64_t kPointerMask = (uint64_t{1} << kGenerationShift) - 1 - kStateMask;

uint64_t generation_bits() {
  return generation.load(std::memory_order_relaxed) << kGenerationShift;
}
bool is_current(uint64_t word) {
  return (word >> kGenerationShift) == (generation_bits() >> kGenerationShift);
}
// The list of a word; none if it was pushed before the last fork.
void* list_of(uint64_t word) {
  return is_current(word) ? reinterpret_cast<void*>(word & kPointerMask) : nullptr;
}

bool owner_is_dead(const Slab* s) {
  ThreadHeap* owner = s->owner();
  return owner != kNobody && owner->dead;
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

// A slab whose thread did not come along through fork.
bool exhume(ThreadHeap* heap, Slab* s) {
  LockGuard guard(burial_lock());
  if (!owner_is_dead(s)) return false;
  s->carved = s->capacity;
  remote_reset(s);
  heap->adopt(s);
  return true;
}

enum class Attempt { kDone, kRetry };

Attempt try_push(ThreadHeap* heap, Slab* s, const Chain& chain) {
  if (s->owner() == heap || (owner_is_dead(s) && exhume(heap, s))) {
    free_locally(heap, s, chain);
    return Attempt::kDone;
  }
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  switch (word & kStateMask) {
    case kOwned:
      if (owner_is_dead(s)) return Attempt::kRetry;
      next_of(chain.tail) = list_of(word);
      if (!s->remote.compare_exchange_weak(word, generation_bits() | uintptr_t(chain.head),
                                           std::memory_order_release, std::memory_order_relaxed))
        return Attempt::kRetry;
      stats::add(stats::kRemotePushes, 1);
      stats::add(stats::kRemoteFrees, chain.count);
      return Attempt::kDone;
    case kFull:
      if (!s->remote.compare_exchange_strong(word, generation_bits() | kOwned,
                                             std::memory_order_acquire, std::memory_order_relaxed))
        return Attempt::kRetry;
      heap->adopt(s);
      break;
    default:
      if (!central_take(s)) return Attempt::kRetry;
      heap->take_partial(s);
      break;
  }
  stats::add(stats::kAdoptedSlabs, 1);
  free_locally(heap, s, chain);
  return Attempt::kDone;
}

void push_slot(ThreadHeap* heap, RemoteCache::Slot* slot) {
  Slab* s = slot->slab;
  Chain chain = {slot->head, slot->tail, slot->count};
  heap->remote.pending_bytes -= size_t{slot->count} * kSizeClasses.size[s->size_class];
  slot->slab = nullptr;
  remote_push(heap, s, chain);
}

uint32_t batch_limit(size_t object_size) {
  size_t n = 16 * 1024 / object_size;
  return uint32_t(n < 16 ? 16 : n > 128 ? 128 : n);
}

}  // namespace

void remote_push(ThreadHeap* heap, Slab* s, const Chain& chain) {
  while (try_push(heap, s, chain) == Attempt::kRetry) {
  }
}

void remote_free(ThreadHeap* heap, Slab* s, void* p) {
  RemoteCache& cache = heap->remote;
  size_t object_size = kSizeClasses.size[s->size_class];
  size_t hash = (uintptr_t(s) >> 7) * 0x9E3779B97F4A7C15ull >> 58;
  static_assert(RemoteCache::kSlots == 64, "the hash has six bits");
  RemoteCache::Slot* slot = &cache.slots[hash];
  if (slot->slab == s) {
    next_of(p) = slot->head;
    slot->head = p;
    ++slot->count;
    cache.pending_bytes += object_size;
    if (slot->count >= slot->limit) push_slot(heap, slot);
  } else {
    if (slot->slab != nullptr) push_slot(heap, slot);
    bool owned = (s->remote.load(std::memory_order_relaxed) & kStateMask) == kOwned;
    if (!owned || owner_is_dead(s)) return remote_push(heap, s, {p, p, 1});
    *slot = {s, p, p, 1, batch_limit(object_size)};
    cache.pending_bytes += object_size;
  }
  if (cache.pending_bytes > RemoteCache::kPendingBytes) remote_flush(heap);
}

void remote_flush(ThreadHeap* heap) {
  if (heap->remote.pending_bytes == 0) return;
  for (RemoteCache::Slot& slot : heap->remote.slots)
    if (slot.slab != nullptr) push_slot(heap, &slot);
}

bool remote_push_from_signal(Slab* s, void* p) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  do {
    if ((word & kStateMask) != kOwned || owner_is_dead(s)) return false;
    next_of(p) = list_of(word);
  } while (!s->remote.compare_exchange_weak(word, generation_bits() | uintptr_t(p),
                                            std::memory_order_release,
                                            std::memory_order_relaxed));
  return true;
}

void* remote_take(Slab* s) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  if ((word & kPointerMask) == 0) return nullptr;
  return list_of(s->remote.exchange(generation_bits() | kOwned, std::memory_order_acquire));
}

bool remote_release(Slab* s, State state) {
  uint64_t word = s->remote.load(std::memory_order_relaxed);
  while (list_of(word) == nullptr)
    if (s->remote.compare_exchange_weak(word, generation_bits() | state,
                                        std::memory_order_release, std::memory_order_relaxed))
      return true;
  return false;
}

void remote_reset(Slab* s) {
  s->remote.store(generation_bits() | kOwned, std::memory_order_release);
}

void remote_new_generation() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace larder
