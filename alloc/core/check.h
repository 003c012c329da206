// Checks the invariants of heaps, slabs and lists by walking them: debug builds only, but for the
// page heap's.
//
// A violation ends the process with a line on stderr (LARDER_CHECK).
#pragma once

namespace larder {

struct ThreadHeap;

#ifdef LARDER_DEBUG
inline constexpr bool kChecked = true;
#else
inline constexpr bool kChecked = false;
#endif

// Checks what the heap owns, caches and lists. REQUIRES: its thread, or its lock. Other threads may
// free into its slabs meanwhile. O(slabs).
void check_heap(const ThreadHeap& heap);

}  // namespace larder

#ifdef LARDER_DEBUG
// Checks all heaps, the central lists, every slab, and the page heap. REQUIRES: no other thread is
// in the allocator.
extern "C" __attribute__((visibility("default"))) void larder_check(void);
#endif
