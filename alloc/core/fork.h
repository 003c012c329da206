// fork: what is under a lock is whole in the child; what only its thread knew is given up for lost.
//
// The page heap, the registry, the central lists and the shared heaps are locked across fork. The
// heaps of other threads are not stopped: a copy of memory that they were changing cannot be
// believed, page by page, so the child marks them dead, in time bounded by the number of heaps,
// and never reads their lists (remote_word.h, registry.h).
#pragma once

namespace larder {

// Registers the handlers; in the constructor, because registration may allocate.
void fork_init();

}  // namespace larder
