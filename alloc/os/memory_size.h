// The memory that this process may use.
#pragma once

#include "base/base.h"

namespace larder {

// In bytes: the minimum of the machine's and of its control groups' limits (memory.max, or version
// 1's memory.limit_in_bytes). 0: unknown. `root` is the parent of /proc and /sys: "" except in
// tests.
//
// Reads a few small files. Limits beyond the visible root group are unknown.
size_t memory_size(const char* root = "");

}  // namespace larder
