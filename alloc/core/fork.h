// fork: what a lock guards is whole in the child; other threads' heaps are abandoned.
//
// The page heap, the registry, the central lists and the shared heaps are locked across fork. Other
// threads are not stopped, so the child cannot trust the memory of their heaps. It marks these
// heaps orphaned, in time bounded by their number, and never reads their lists (remote_word.h,
// registry.h).
#pragma once

namespace larder {

// Registers the handlers. In the constructor, because registration may allocate.
void fork_init();

}  // namespace larder
