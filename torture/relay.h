// Threads that only allocate and threads that only free, or nearly so, with a bounded queue between
// them: what is live has a bound, and so must be what the allocator keeps.
#pragma once

#include <stdint.h>

namespace torture {

// By the main thread, while there is no other. Reports growth if the resident set rises beyond any
// cache while the work goes on.
void run_relay(uint64_t round);

}  // namespace torture
