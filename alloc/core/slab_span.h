// A slab as a span of the page heap: made, made over for another class, given back.
//
// Thread safety: any thread, for a slab that only the caller can reach.
#pragma once

#include "core/slab.h"

namespace larder {

// A slab of the class, nothing carved, not owned yet; nullptr without memory.
Slab* slab_acquire(int size_class);
// REQUIRES: used == 0.
void slab_reset(Slab* s, int size_class);
void slab_release(Slab* s);
inline size_t slab_bytes(const Slab* s) { return s->pages * kPageBytes; }

}  // namespace larder
