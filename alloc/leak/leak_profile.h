// The leaks of a check as a heap profile, in HEAP_CHECK_DUMP_DIRECTORY: PROGRAM.PID.NAME-end.heap,
// with a number behind the name where that is there already.
#pragma once

#include "leak/leak.h"

namespace larder {

// Nothing without a directory. What cannot be written is told in a line.
void write_leak_profile(const char* name, const LeakList& list, const LeakOptions& options);

}  // namespace larder
