// What the heap holds, summed over all slabs, runs and mappings. Walks the heap: not for a hot
// path.
#pragma once

#include "base.h"
#include "registry.h"

namespace larder {

struct Slab;

struct Usage {
  size_t mapped;        // from the system, all purposes
  size_t small_in_use;  // objects in slabs, by class size
  size_t large_in_use;  // runs, blocks
  size_t huge_in_use;   // mappings of their own
  size_t huge_count;
  size_t huge_peak;  // highest huge_in_use so far
  size_t slabs;      // count
  size_t free_dirty, free_clean;
  size_t kept;  // freed mappings
  HeapCounts heaps;
};

// Any thread. Slabs of other threads are read while they change: each figure is close, not exact,
// unless the process is quiet.
Usage heap_usage();
// The current slab of the calling thread can be counted exactly; those of others are taken as all
// in use.
size_t objects_in_use(const Slab* s);

}  // namespace larder
