// Writes the leaks of a check as a heap profile:
// HEAP_CHECK_DUMP_DIRECTORY/PROGRAM.PID.NAME-end.heap, with a number after the name if that file
// exists.
#pragma once

#include "leak/leak.h"

namespace larder {

// Does nothing without a directory. Reports an error in a line.
void write_leak_profile(const char* name, const LeakList& list, const LeakOptions& options);

}  // namespace larder
