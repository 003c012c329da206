// Frees of objects in slabs that another heap, or nobody, owns.
//
// A heap collects them per slab and pushes each collection with one compare-and-swap on the slab's
// word (remote_word.h); the owner takes all by exchange. Nothing waits, and there is no lock but
// that of a class's central list.
//
// Bound: a heap holds back at most kSlots collections and kPendingBytes of freed objects; both go
// out at its next refill from the page heap, or when the thread ends.
#pragma once

#include "core/remote_word.h"

namespace larder {

struct RemoteCache {
  static constexpr int kSlots = 256;
  struct Slot {
    Slab* slab;
    void* head;
    void* tail;
    uint32_t count;
    uint32_t limit;
  };
  Slot slots[kSlots];
  uint64_t taken[kSlots / 64];  // bit: the slot may hold a collection
  size_t pending_bytes;
};

// Frees `p`, which lies in `s`, a kSlab that `heap` does not own. Takes the slab over if nobody
// owns it. Only the heap's thread (or the holder of its lock).
void remote_free(ThreadHeap* heap, Slab* s, void* p);
// Pushes at once.
void remote_push(ThreadHeap* heap, Slab* s, const Chain& chain);
void remote_flush(ThreadHeap* heap);
// For a signal handler that may not touch its thread's heap. False: not freed.
bool remote_push_from_signal(Slab* s, void* p);

}  // namespace larder
