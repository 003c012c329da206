// The statistics that larder.h promises: as a structure, and as JSON.
//
// Thread safety: any thread. Cost: a walk over the heap (heap_walk.h).
#pragma once

#include "base/writer.h"

struct larder_stats;

namespace larder {

void fill_statistics(larder_stats* out);
// 0, or an error of errno.h: what the sink refuses; EBUSY in a signal handler that interrupted the
// allocator.
int write_statistics(TextSink sink, void* context);

}  // namespace larder
