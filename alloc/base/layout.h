// What another process may read of this one, with process_vm_readv: where the heap's structures
// are, and how they are laid out. Each layout is defined next to what it describes, by offsetof, so
// that it cannot be wrong. Offsets are in bytes.
//
// live/build.rs reads this file: a field is a pointer, an integer of a given size, or an array of
// char. A reader compares versions and sizes.
#pragma once

#include "base/base.h"

namespace larder {

// Of the heap profile (site.h).
struct ProfileLayout {
  uint32_t bytes = sizeof(ProfileLayout);  // of this structure
  const void* first_site;                  // a Site; the others follow by `next`
  const void* slots;                       // the address of a table of addresses
  const void* slot_count;                  // size_t
  const void* peak_version;  // uint64_t: of sites whose own is that, at_peak is the peak's
  uint32_t most_sites;
  uint16_t site_bytes, most_frames, lifetimes;
  uint16_t next, frames, depth, truncated, in_use, allocated, variance, sampled_bytes, samples,
      heaviest, at_mark, at_peak, own_peak_version, freed, exempt;
};

// Of the sampler (sampler.h).
struct SamplerLayout {
  uint32_t bytes = sizeof(SamplerLayout);
  const void* mean;        // size_t
  const void* everything;  // bool
  const void* deferred;    // freed objects, by their first word
  uint16_t point_bytes, point_next, point_slot, point_state, point_site, point_asked;
  uint16_t exempt_states;  // of which one says that the object is no leak
};

// Of regions, segments and slabs (segment.h, slab.h).
struct PagesLayout {
  uint32_t bytes = sizeof(PagesLayout);
  const void* first_region;  // Region*
  const void* reused_bytes;  // uint64_t
  uint16_t region_bytes, region_next, region_base, region_segments, region_count;
  uint16_t shared_table_segments;  // tables of so many segments lie among descriptors
  uint16_t segment_bytes, segment_free, segment_dirty;
  uint16_t slab_bytes, slab_owner, slab_list, slab_free, slab_used, slab_capacity, slab_class,
      slab_kind, slab_base, slab_carved, slab_purged, slab_pages, slab_span_bytes, slab_offset,
      slab_prev, slab_remote, slab_decommitted, slab_point;
};

// Of mappings of their own (large.cc).
struct LargeLayout {
  uint32_t bytes = sizeof(LargeLayout);
  const void* descriptors;   // Slab*, of all that were ever made, by slab_prev
  const void* cached;        // an array
  const void* cached_count;  // int
  const void* reused_bytes;  // uint64_t
  const void* last_freed;    // Slab*
  uint16_t most_cached, cached_bytes, cached_base, cached_length;
};

// Of threads' heaps (registry.cc, thread_heap.h).
struct HeapsLayout {
  uint32_t bytes = sizeof(HeapsLayout);
  const void* first;   // ThreadHeap*, by `next`
  const void* shared;  // an array of ThreadHeap*, one a processor
  uint16_t most_shared;
  uint16_t heap_bytes;  // of it that is worth reading
  uint16_t next, heads, bins, bin_bytes, bin_points, cached_span_bytes, refills, fresh_slabs,
      remote_frees, orphaned, assigned;
  // What was freed for others' slabs: an array; and what inlined code caches, by class.
  uint16_t pending, pending_count, pending_bytes, pending_slab, pending_head, pending_objects;
  uint16_t inlined, inlined_classes, inlined_newer, inlined_older;
  // What threads without a heap share: an array of CpuCache*, one a CPU (cpu_cache.h).
  const void* cpu_caches;
  uint16_t most_cpu_caches, cpu_cache_objects, cpu_cache_room;
};

// Memory for descriptors: chunks linked by their first word (meta.cc), and the page map.
struct MetaLayout {
  uint32_t bytes = sizeof(MetaLayout);
  const void* last_chunk;  // uintptr_t
  uint32_t chunk_bytes;
};

// What Larder has mapped (os_linux.cc): addresses of objects are among these.
struct OwnLayout {
  uint32_t bytes = sizeof(OwnLayout);
  const void* table;
  uint32_t table_bytes;
  uint16_t ranges, room;  // in it: the address of more, and how many of 16 bytes these are
};

// The limits on held memory (options.cc).
struct LimitsLayout {
  uint32_t bytes = sizeof(LimitsLayout);
  const void *soft_mib, *hard_mib;  // size_t; 0: none
};

// `larder_anchor` is found by its symbol, or by its magic. All of it is constant: nothing is
// written or computed at run time, and Larder does not notice a reader. kVersion changes when a
// field changes its meaning. A reader sees a heap that changes: any word may be stale, or half of a
// change.
struct Anchor {
  static constexpr uint32_t kVersion = 6;

  char magic[16];
  uint32_t version, bytes;  // of this structure
  char library[16];         // its version
  const ProfileLayout* profile;
  const SamplerLayout* sampler;
  const PagesLayout* pages;
  const LargeLayout* large;
  const HeapsLayout* heaps;
  const MetaLayout* meta;
  const OwnLayout* own;
  const LimitsLayout* limits;
  const void* counters;        // int64_t, by stats::Counter
  const void* class_sizes;     // uint32_t
  const void* class_capacity;  // uint16_t
  const void* page_map;
  uint64_t page_map_bytes;
  uint32_t page_map_leaf_entries, page_map_leaf_offset;
  uint16_t counter_count, class_count, page_shift, segment_shift;
};

extern const ProfileLayout profile_layout;
extern const SamplerLayout sampler_layout;
extern const LargeLayout large_layout;
extern const HeapsLayout heaps_layout;
extern const MetaLayout meta_layout;
extern const OwnLayout own_layout;
extern const LimitsLayout limits_layout;

}  // namespace larder
