// Frees of objects in slabs that another heap, or nobody, owns.
//
// A heap collects them per slab and pushes each collection with one compare-and-swap on the slab's
// `remote` word; the owner takes all by exchange. Nothing waits, and there is no lock but that of
// a class's central list. The word's low bits arbitrate who owns a slab (slab.h), its high bits
// hold the fork generation: a child of fork must not believe a list that another thread was
// pushing to at that moment, so lists of an older generation are dropped, at no cost to fork.
//
// Bound: a heap holds back at most kSlots collections and kPendingBytes of freed objects; both go
// out at its next refill from the page heap, or when the thread ends.
#pragma once

#include "slab.h"

namespace larder {

struct RemoteCache {
  static constexpr int kSlots = 64;
  static constexpr size_t kPendingBytes = 256 * 1024;
  struct Slot {
    Slab* slab;
    void* head;
    void* tail;
    uint32_t count;
    uint32_t limit;
  };
  Slot slots[kSlots];
  size_t pending_bytes;
};

// Objects of one slab, linked from `head` to `tail`.
struct Chain {
  void* head;
  void* tail;
  uint32_t count;
};

// Frees `p`, which lies in `s`, a kSlab that `heap` does not own. Takes the slab over if nobody
// owns it. Only the heap's thread (or the holder of its lock).
void remote_free(ThreadHeap* heap, Slab* s, void* p);
// Pushes at once.
void remote_push(ThreadHeap* heap, Slab* s, const Chain& chain);
void remote_flush(ThreadHeap* heap);
// For a signal handler that may not touch its thread's heap. False: not freed.
bool remote_push_from_signal(Slab* s, void* p);

// REQUIRES: the caller owns `s`. All objects that others have pushed, linked; nullptr if none.
void* remote_take(Slab* s);
// REQUIRES: the caller owns `s` and has made it fit for whoever adopts it. False when others have
// pushed meanwhile: it is still owned then.
bool remote_release(Slab* s, State state);
// REQUIRES: nobody else can take it (a fresh slab; a central one under its list's lock).
void remote_reset(Slab* s);

// Lists pushed before this do not count in this process.
void remote_new_generation();

}  // namespace larder
