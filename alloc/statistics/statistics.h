// The statistics of larder.h, as a structure and as JSON.
//
// Thread safety: any thread. Cost: a heap walk (heap_walk.h).
#pragma once

#include "base/writer.h"

struct larder_stats;

namespace larder {

void fill_statistics(larder_stats* out);
// 0, or an error of errno.h: the sink's; EBUSY in a signal handler that interrupted the allocator.
int write_statistics(TextSink sink, void* context);

}  // namespace larder
