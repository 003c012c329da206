// A walk over the whole heap: what it holds, in use and free, by class and by kind; on request, how
// much of each kind is in memory.
//
// Any thread. Slabs of other threads are read while they change: figures are close, and exact only
// in a quiet process. About a microsecond a MiB; asking for residence, three.
#pragma once

#include "base/size_class.h"
#include "core/registry.h"

namespace larder {

struct Slab;

inline constexpr int kHistogram = 64;

// Every byte that was mapped for objects is of one part, and so is every descriptor's.
enum class Part {
  kInUse,           // objects, by the size of their class; large ones: what their pages take
  kSlabFree,        // free objects in slabs
  kUncarved,        // of slabs: never handed out since they are slabs
  kTail,            // ends of slabs where no object fits; before large objects, for their alignment
  kSampleSlabs,     // where sampled objects are: their slots are in use as well
  kCachedSpans,     // spans that heaps keep, or that are just being given back
  kPageDirty,       // free pages that may hold memory
  kPageClean,       // and that do not
  kCachedMappings,  // freed mappings
  kMetadata,        // descriptors, the page map
};
inline constexpr int kParts = int(Part::kMetadata) + 1;

struct PartSize {
  size_t bytes, resident;
};

struct ClassSnapshot {
  size_t objects, slabs;
  size_t free_objects;            // handed out before, and free
  size_t own_free, central_free;  // bytes not in use, in slabs that a heap owns and in others
};

struct HeapSnapshot {
  ClassSnapshot of_class[kClasses];
  PartSize parts[kParts];
  size_t objects;                // count
  size_t small_in_use;           // bytes in slabs
  size_t spans, span_bytes;      // large objects within blocks
  size_t mappings, huge_bytes;   // and of mappings of their own
  size_t huge_peak;              // highest huge_bytes so far
  size_t histogram[kHistogram];  // objects by the logarithm of their size
  size_t slabs;                  // count
  size_t rounding_most;          // bytes at most that objects have beyond what was asked for
  size_t mine;                   // free in the calling thread's slabs, and spans that it keeps
  size_t mapped;                 // from the system, for all purposes
  size_t region_bytes;           // of all blocks
  size_t descriptors;            // count, of slabs and spans
  HeapCounts heaps;
  bool sound;           // descriptors agree with the page map and with themselves
  bool complete;        // false: a signal handler that interrupted the allocator asked
  bool resident_known;  // PartSize::resident was asked for, and the system told

  size_t part(Part p) const { return parts[int(p)].bytes; }
  size_t in_use() const { return part(Part::kInUse); }
  size_t free_in_threads() const;
  size_t free_in_central() const;
  // From the system for objects: used, free or untouched.
  size_t heap_bytes() const { return region_bytes + huge_bytes + part(Part::kCachedMappings); }
  size_t untouched_bytes() const { return part(Part::kPageClean); }
  size_t page_heap_free() const { return part(Part::kPageDirty) + part(Part::kCachedMappings); }
  // Free for any thread or kept by a heap, and perhaps in memory.
  size_t free_dirty() const { return part(Part::kPageDirty) + heaps.cached_bytes; }
  size_t resident() const;
};

enum class Residence : bool { kUnasked, kAsked };
void walk_heap(HeapSnapshot* out, Residence residence = Residence::kUnasked);

// The current slab of the calling thread can be counted exactly; those of others are taken as all
// in use.
size_t objects_in_use(const Slab* s);

// Whether p is the address of an object that is in use, as far as can be told in O(1).
bool is_object(const void* p);

}  // namespace larder
