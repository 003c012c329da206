// Heap walk: counts what the heap holds, in use and free, by class and by kind; on request also how
// much of each kind is resident.
//
// Any thread. It reads other threads' slabs while they change: figures are exact only in a quiet
// process. About 1 us a MiB, 3 us with residence.
#pragma once

#include "base/size_class.h"
#include "core/registry.h"

namespace larder {

struct Slab;

inline constexpr int kHistogram = 64;

// Every mapped byte belongs to one part.
enum class Part {
  kInUse,           // by size class; large objects by pages
  kSlabFree,        // free objects of slabs
  kUncarved,        // of slabs: not carved yet
  kTail,            // ends of slabs that fit no object; before large objects, for alignment
  kSampleSlabs,     // slabs of sampled objects, whose slots are in use as well
  kCachedSpans,     // spans that heaps cache, or that are being freed
  kPageDirty,       // dirty free pages
  kPageClean,       // clean free pages
  kCachedMappings,  // freed mappings
  kMetadata,        // descriptors and the page map
};
inline constexpr int kParts = int(Part::kMetadata) + 1;

struct PartSize {
  size_t bytes, resident;
};

struct ClassSnapshot {
  size_t objects, slabs;
  size_t free_objects;            // carved and free
  size_t own_free, central_free;  // bytes not in use, of owned slabs and of others
};

struct HeapSnapshot {
  ClassSnapshot of_class[kClasses];
  PartSize parts[kParts];
  size_t objects;                // count
  size_t small_in_use;           // bytes in slabs
  size_t spans, span_bytes;      // large objects
  size_t mappings, huge_bytes;   // huge objects
  size_t huge_peak;              // the maximum of huge_bytes
  size_t histogram[kHistogram];  // objects by log2(size)
  size_t slabs;                  // count
  size_t rounding_most;          // upper bound on the bytes that were not requested
  size_t mine;                   // free in the calling thread's slabs, and its cached spans
  size_t mapped;                 // from the system, for all purposes
  size_t region_bytes;           // of all segments
  size_t guarded_bytes;          // of guarded samples' pages
  size_t descriptors;            // count, of slabs and spans
  HeapCounts heaps;
  bool sound;           // descriptors agree with the page map and with themselves
  bool complete;        // false: called in a signal handler that interrupted the allocator
  bool resident_known;  // PartSize::resident is valid

  size_t part(Part p) const { return parts[int(p)].bytes; }
  size_t in_use() const { return part(Part::kInUse); }
  size_t free_in_threads() const;
  size_t free_in_central() const;
  // From the system for objects: used, free or untouched.
  size_t heap_bytes() const {
    return region_bytes + huge_bytes + guarded_bytes + part(Part::kCachedMappings);
  }
  size_t untouched_bytes() const { return part(Part::kPageClean); }
  size_t page_heap_free() const { return part(Part::kPageDirty) + part(Part::kCachedMappings); }
  // Free for any thread or cached, and perhaps resident.
  size_t free_dirty() const { return part(Part::kPageDirty) + heaps.cached_bytes; }
};

enum class Residence : bool { kUnasked, kAsked };
void walk_heap(HeapSnapshot* out, Residence residence = Residence::kUnasked);

// Exact for the calling thread's slabs. The current slabs of other threads count as all in use.
size_t objects_in_use(const Slab* s);

// Whether p is the address of an object in use, as far as O(1) can tell.
bool is_object(const void* p);

}  // namespace larder
