// Threads that only allocate and threads that mostly free, with a bounded queue between them: live
// memory is bounded, so what the allocator keeps must be bounded, too.
#pragma once

#include <stdint.h>

namespace torture {

// REQUIRES: called by the main thread while there is no other. Reports growth if the resident set
// rises beyond any cache during the work.
void run_relay(uint64_t round);

}  // namespace torture
