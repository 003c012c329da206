// What another process may read of this one, with process_vm_readv: where the heap's structures
// are, and how they are laid out. `larder_anchor` is found by its symbol, or by its magic.
//
// All of it is constant: nothing is written or computed at run time, and nobody here is told of a
// reader. kVersion changes when a layout changes its form, or a field its meaning. Whoever reads
// sees a heap in motion: any word may be stale or half of a change.
#pragma once

#include "base/layout.h"

namespace larder {

struct Anchor {
  static constexpr uint32_t kVersion = 3;

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
  const void* counters;        // int64_t, by stats::Counter
  const void* class_sizes;     // uint32_t
  const void* class_capacity;  // uint16_t
  const void* page_map;
  uint64_t page_map_bytes;
  uint32_t page_map_leaf_entries, page_map_leaf_offset;
  uint16_t counter_count, class_count, unit_shift, block_shift;
};

}  // namespace larder

extern "C" __attribute__((visibility("default"))) const larder::Anchor larder_anchor;
