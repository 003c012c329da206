// What the kernel says of this process's memory. One thread.
#pragma once

#include <stdint.h>

namespace replay {

// A field of /proc/self/status, "VmRSS:" and the like, in its unit (KiB); 0 without it.
uint64_t status_field(const char* key);

// From now on the peak is counted anew; false if the kernel does not let us.
bool forget_peak();

}  // namespace replay
