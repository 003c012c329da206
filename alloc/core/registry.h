// The heaps of the process: a bounded number for threads, and one a CPU that all other threads
// share.
//
// Thread safety: any thread; one lock, taken when a thread gets or gives up its heap. Heaps are
// never freed, so a slab's owner can always be read.
#pragma once

#include "base/function_ref.h"
#include "core/thread_heap.h"

namespace larder {

// The thread's heap, made if the bound allows; nullptr for a surplus thread, or one whose heap is
// torn down.
ThreadHeap* thread_heap();
// The heap of the current CPU; nullptr only without memory at the very start.
ThreadHeap* shared_heap();
// The thread ends. If its heap owns little, it keeps that for the next thread: threads that come
// and go then take no lock but the registry's. Otherwise the heap gives up its slabs.
void thread_exit();
// Heaps that wait for a thread give up their slabs. False: there were none.
bool registry_release_unused();
// In the constructor. Before it, the end of a thread goes unnoticed.
void registry_init();

struct HeapCounts {
  size_t in_use, shared;
  // The following are sums over all heaps.
  size_t cached_bytes;  // now, in cached spans and empty slabs
  uint64_t refills, fresh_slabs, adopted_slabs, remote_frees, remote_pushes;
};
HeapCounts heap_counts();

// Calls `visit` for all heaps, also waiting, orphaned and shared ones, under the registry's lock
// and each shared heap's.
void registry_for_each(FunctionRef<void(ThreadHeap&)> visit);

// The registry's lock and those of the shared heaps, in locking order.
void registry_for_each_lock(void (*visit)(Lock&));
// In fork's child: abandons the heaps of the other threads. Their slabs are orphaned; a thread that
// frees into one reclaims it as a full slab. Its free objects are leaked, because its thread may
// have been changing the list.
void registry_abandon_others();
Lock& reclaim_lock();

}  // namespace larder
