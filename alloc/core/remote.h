// Remote frees: of objects in slabs that another heap owns, or none.
//
// A heap collects them per slab and pushes each collection with one compare-and-swap on the slab's
// word (remote_word.h). The owner takes all of them by one exchange. Nothing waits. The only lock
// is that of a class's central list.
//
// Bound: a heap collects for kRemoteSlots slabs and kPendingBytes. It pushes all at its next refill
// from the page heap, and when its thread ends.
#pragma once

#include "base/policy.h"
#include "core/remote_word.h"

namespace larder {

struct RemoteCache {
  struct Slot {
    Slab* slab;
    void* head;
    void* tail;
    uint32_t count;
    uint32_t limit;
  };
  Slot slots[kRemoteSlots];
  uint64_t taken[kRemoteSlots / 64];  // bit: the slot may hold a collection
  size_t pending_bytes;
};

// Frees `p` in `s`, a kSlab that `heap` does not own; adopts the slab if it is unowned. REQUIRES:
// the heap's thread, or its lock.
void remote_free(ThreadHeap* heap, Slab* s, void* p);
// Pushes without collecting.
void remote_push(ThreadHeap* heap, Slab* s, const Chain& chain);
void remote_flush(ThreadHeap* heap);
// For a signal handler, which may not touch its thread's heap, and a thread that has none. Takes no
// lock. False: not freed.
bool remote_push_without_heap(Slab* s, void* p);

}  // namespace larder
