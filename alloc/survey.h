// A walk over the whole heap, for those who ask what is free where. Not for a hot path.
//
// Any thread. As in usage.h, slabs of other threads are read while they change: figures are close,
// and exact only in a quiet process.
#pragma once

#include "size_class.h"

namespace larder {

inline constexpr int kHistogram = 64;

struct Survey {
  size_t in_use;                     // bytes, by class size
  size_t objects;                    // count
  size_t histogram[kHistogram];      // of them, by the logarithm of their size
  size_t own_free[kClasses];         // bytes free in slabs that threads' heaps own, by class
  size_t central_free[kClasses];     // and in those that nobody owns
  size_t kept_run_bytes;             // freed runs that heaps keep
  size_t mine;                       // free in the calling thread's slabs, and runs that it keeps
  size_t page_free, page_untouched;  // bytes in the page heap that may, and do not, take memory
  size_t region_bytes;               // of all blocks
  size_t huge_bytes, huge_kept;      // mappings of their own: in use; freed and kept
  size_t descriptors;                // count, of slabs and runs
  bool sound;                        // descriptors agree with the page map and with themselves

  size_t free_in_threads() const;
  size_t free_in_central() const;
  // From the system for objects: used, free or untouched.
  size_t heap_bytes() const { return region_bytes + huge_bytes + huge_kept; }
  size_t untouched_bytes() const { return page_untouched; }
  size_t page_heap_free() const { return page_free + huge_kept; }
};

void survey_heap(Survey* out);

// Whether p is the address of an object that is in use, as far as can be told in O(1).
bool is_object(const void* p);

}  // namespace larder
