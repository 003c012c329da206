// Threads without a heap, because there are enough or theirs is torn down: they allocate from their
// CPU's cache (cpu_cache.h), and behind it from its shared heap, under the lock of that. Owns
// nothing. Any thread; that a thread shares is for good, unless it is given a heap later.
#pragma once

#include "core/thread_heap.h"

namespace larder {

LARDER_FAST bool shares() { return thread_state.phase >= ThreadState::kSurplus; }

// From the cache alone, also in a signal handler: nullptr, or false, if that is empty or full.
LARDER_WARM void* shared_take(int c);
LARDER_WARM bool shared_put(void* p, int c);

// Behind the cache, which is filled or emptied by half on the way.
LARDER_WARM void* shared_malloc(int c, size_t size_bytes, void* caller);
LARDER_WARM void shared_free(void* p, int c);
// Frees the slot of a sampled object.
LARDER_WARM void shared_free_slot(SamplePoint* point);
// Empties this CPU's cache.
LARDER_WARM void shared_release_cache();

}  // namespace larder
