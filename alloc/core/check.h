// The invariants of heaps, slabs and lists, checked by walking them: debug builds only.
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

// What the heap owns, keeps and has in its lists. By its thread, or under its lock; other threads
// may free into its slabs meanwhile. O(slabs).
void check_heap(const ThreadHeap& heap);

}  // namespace larder

#ifdef LARDER_DEBUG
// All heaps, the central lists, every slab, and the page heap. REQUIRES: no other thread is in the
// allocator meanwhile.
extern "C" __attribute__((visibility("default"))) void larder_check(void);
#endif
