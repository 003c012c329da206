// Which heaps there are: at most a bounded number for threads, one a CPU for all other threads.
//
// Thread safety: any thread; one lock, taken when a thread gets or gives up its heap. Heaps are
// never freed: a slab's owner can always be looked at.
#pragma once

#include "core/thread_heap.h"

namespace larder {

// The thread's heap, made if the bound allows; nullptr for a surplus or torn-down thread.
ThreadHeap* thread_heap();
// The heap of the CPU that runs this; nullptr only without memory at the very start.
ThreadHeap* shared_heap();
// The thread ends. The next one takes over its heap with all that it has, if that is little:
// threads that come and go then need no lock but the registry's. Otherwise its slabs become
// everyone's.
void thread_exit();
// Those of heaps that wait for a thread become everyone's, too. False if there were none.
bool registry_release_unused();
// Called in the constructor: before it, threads cannot be told when they end.
void registry_init();

struct HeapCounts {
  size_t in_use, unused, shared, orphaned;
  // Sums of all heaps' counters since the start.
  size_t cached_bytes;  // in kept spans and kept empty slabs, now
  uint64_t refills, fresh_slabs, adopted_slabs, remote_frees, remote_pushes;
};
HeapCounts heap_counts();

// All heaps: threads', waiting, dead, shared. Holds the registry's lock, and each shared heap's.
void registry_for_each(void (*visit)(ThreadHeap&, void*), void* context);

// The registry's lock and those of the shared heaps, in the order of locking.
void registry_for_each_lock(void (*visit)(Lock&));
// In a fork's child: heaps of threads that are not here any more. Their slabs are adopted, one by
// one, by whoever frees into them, as full: what was free in them stays lost, because a list that
// its thread was changing at that moment cannot be believed.
void registry_abandon_others();
Lock& reclaim_lock();

}  // namespace larder
