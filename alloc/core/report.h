// LARDER_LARGE_ALLOC_REPORT_THRESHOLD: a line on stderr for each block that is larger.
#pragma once

#include "os/options.h"

namespace larder {

LARDER_SLOW void report_large_object(const void* p, size_t size_bytes);

// Behind each block that is made beyond a slab; those that serve again were told when they were
// made.
LARDER_FAST void report_if_large(const void* p, size_t size_bytes) {
  size_t threshold = option(Option::kLargeAllocReportThreshold);
  if (unlikely(threshold != 0 && size_bytes > threshold)) report_large_object(p, size_bytes);
}

}  // namespace larder
