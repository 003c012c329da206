// A clock that the test moves. A program that links it has it in place of the system's monotonic
// clock, and so has the allocator in it, linked in or preloaded, which reads no other
// (alloc/os/os_linux.cc). What the kernel waits for, as in poll and nanosleep, takes its own time.
//
// Time never goes back. Thread safety: any thread.
#pragma once

#include <stdint.h>

namespace test_clock {

void pass_ms(uint64_t ms);
// From here on time stands still but for pass_ms(), and what a look at the clock takes.
void stop(uint64_t us_per_look = 0);
void go_on();

}  // namespace test_clock
