// The kernel's figures for this process's memory. One thread.
#pragma once

#include <stdint.h>

namespace replay {

// A field of /proc/self/status, "VmRSS:" and the like, in its unit (KiB); 0 without it.
uint64_t status_field(const char* key);

// Resets the peak; false if the kernel refuses.
bool forget_peak();

}  // namespace replay
