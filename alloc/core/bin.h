// Bin: what a thread heap has of one size class, beside heads[c], from which malloc takes objects.
//
// Ownership: the heap's thread, or the holder of its lock.
// Invariants:
//   L == heads[c] and the lists behind `sample_points`
//   L == the free objects of `current` + deferred frees
//   |deferred frees| <= deferred; none if that is kDeferNoMore
// A list ends before each object with a sample point (sampler.h), so that malloc calls refill. A
// deferred free is an object that this thread freed and that is in use for its slab. It needs no
// slab until it is released.
// Bound: the current slab, and kSizeClasses.max_deferred[c] objects.
#pragma once

#include "core/sampler.h"
#include "core/slab.h"

namespace larder {

inline constexpr uint8_t kDeferNoMore = 255;

struct Bin {
  Slab* current;
  SamplePoint* sample_points;  // on free slots, in their order
  SlabList partial;
  Slab* last_deferred_slab;  // of the last deferred free
  uint8_t deferred;          // in heads[c] since it was last empty; or kDeferNoMore
  // Slabs adopted, minus those needed since; 0 to kIdleAdoptions. High in a heap that frees more
  // than it allocates.
  uint8_t idle_adoptions;
};

}  // namespace larder
