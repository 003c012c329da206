// Slabs as spans of the page heap: acquire, reset for another class, release.
//
// Thread safety: any thread, for a slab that only the caller can reach.
#pragma once

#include "core/slab.h"

namespace larder {

// An unowned slab of the class with nothing carved; nullptr without memory.
Slab* slab_acquire(int size_class);
// REQUIRES: used == 0.
void slab_reset(Slab* s, int size_class);
void slab_release(Slab* s);
inline size_t slab_bytes(const Slab* s) { return s->pages * kPageBytes; }

}  // namespace larder
