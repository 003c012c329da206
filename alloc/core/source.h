// Where segments come from: regions of up to 64 segments, aligned to 2 MiB (backing). They stay
// mapped, unless address space runs out.
//
// The first region is small, and each later one as large as all before it: a process maps O(log
// heap) regions until they reach 128 MiB. A refused size is halved down to what is needed, so that
// a program under RLIMIT_AS or strict overcommit starts, and only requests that do not fit fail.
// Thread safety: the caller holds the page heap's lock.
#pragma once

#include "base/policy.h"
#include "core/segment.h"

namespace larder {

// A region of at least `min_segments` (<= 64) free segments, with its page-map tables; nullptr
// without memory.
Region* source_region(unsigned min_segments, size_t segments_so_far);
// Bytes of its table of descriptors, if that is a mapping of its own; else 0.
size_t source_table_bytes(const Region& region);
// REQUIRES: all its segments are free. Unmaps it. False: the system refused; nothing changed.
bool source_release(Region* region);

}  // namespace larder
