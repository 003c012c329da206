// What is reported on stderr: large objects (LARDER_LARGE_ALLOC_REPORT_THRESHOLD), and stacks.
#pragma once

#include "os/options.h"

namespace larder {

// Return addresses of the caller's stack from the program's call on, the innermost first. Returns
// their number, 0 if the program has no unwinder. It may allocate: the caller is within a SlowPath.
LARDER_SLOW unsigned walk_stack(uintptr_t* to, unsigned most);
// Writes a line a frame, with its module and the offset in it.
void report_frames(const uintptr_t* frames, size_t count);
// Writes the stack from the program's call on.
LARDER_SLOW void report_stack();
// In a signal handler: writes the stack from the interrupted instruction on.
LARDER_SLOW void report_interrupted_stack(uintptr_t instruction);
LARDER_SLOW void report_large_object(const void* p, size_t size_bytes);

// Called for each new large object. Cached spans and mappings were reported when they were made.
LARDER_FAST void report_if_large(const void* p, size_t size_bytes) {
  size_t threshold = option(Option::kLargeAllocReportThreshold);
  if (unlikely(threshold != 0 && size_bytes > threshold)) report_large_object(p, size_bytes);
}

}  // namespace larder
