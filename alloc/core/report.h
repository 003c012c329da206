// What is reported on stderr: large objects (LARDER_LARGE_ALLOC_REPORT_THRESHOLD), and stacks.
#pragma once

#include "os/options.h"

namespace larder {

// Writes the stack from the program's call on: a line a frame, with its module and the offset in
// it.
LARDER_SLOW void report_stack();
LARDER_SLOW void report_large_object(const void* p, size_t size_bytes);

// Called for each new large object. Cached spans and mappings were reported when they were made.
LARDER_FAST void report_if_large(const void* p, size_t size_bytes) {
  size_t threshold = option(Option::kLargeAllocReportThreshold);
  if (unlikely(threshold != 0 && size_bytes > threshold)) report_large_object(p, size_bytes);
}

}  // namespace larder
