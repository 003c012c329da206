// How much memory there is for this process.
#pragma once

#include "base/base.h"

namespace larder {

// Bytes: the least of what its control groups allow (memory.max, or memory.limit_in_bytes of
// version 1), and of the machine's. 0: not known. `root` is where /proc and /sys are: "" but in
// tests.
//
// Reads a few small files; no limit beyond the group that is the root of what can be seen counts.
size_t memory_size(const char* root = "");

}  // namespace larder
