// Where segments come from: regions of up to 64 segments, aligned to 2 MiB (backing). They stay
// mapped, unless address space runs out.
//
// The first region is small and each later one as large as all before it, so a process maps
// O(log heap) regions until they reach 128 MiB; a refused size is halved down to what is needed,
// so a program under RLIMIT_AS or strict overcommit starts, and fails only what does not fit.
// Thread safety: the caller holds the page heap's lock.
#pragma once

#include "base/policy.h"
#include "core/segment.h"

namespace larder {

// A region of at least `min_segments` (<= 64), all of them free, with its part of the page map
// made; nullptr when no memory can be had.
Region* source_region(unsigned min_segments, size_t segments_so_far);
// Of its table, if that has memory of its own; others lie among descriptors.
size_t source_table_bytes(const Region& region);
// Unmaps a region whose segments are all free. False: the system refused, and it is as it was.
bool source_release(Region* region);

}  // namespace larder
