// The full list of a thread heap: slabs that ran out of free objects lately, the oldest first. The
// heap owns them for a while longer: the next frees are likely to be in them, and then take no
// atomic operation.
//
// Ownership: the heap's thread, or the holder of its lock.
// Invariant, of each slab: carved == capacity, used == 1, so the first free in it makes used 0.
// Bound: kMaxFull slabs, kMaxFullBytes.
#pragma once

#include "base/policy.h"
#include "core/slab_span.h"

namespace larder {

struct FullList {
  SlabList slabs;
  size_t bytes;

  bool beyond_bound() const { return slabs.size() > kMaxFull || bytes > kMaxFullBytes; }
  void push_back(Slab* s) {
    s->used = 1;
    slabs.push_back(s);
    bytes += slab_bytes(s);
  }
  // Restores `used`, which counts the objects that were freed meanwhile.
  void remove(Slab* s) {
    slabs.remove(s);
    bytes -= slab_bytes(s);
    s->used = s->carved;
    for (void* p = s->free; p != nullptr; p = next_of(p)) --s->used;
  }
};

}  // namespace larder
