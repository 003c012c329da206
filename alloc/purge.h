// Free memory goes back to the system: after a decay, at a bounded rate, whole blocks first.
//
// Driven by whoever passes through the page heap or frees a large object: no thread of its own, so
// an idle process keeps what it had. Pages are discarded, never unmapped: mappings stay few.
// Thread safety: any thread; one purges at a time, and the discarding itself holds no lock.
#pragma once

#include "base.h"

namespace larder {

// A clock look at most every call, work at most every 100 ms, at most the configured bytes a tick.
void purge_tick();
// Everything that is free, now. Bytes given back.
size_t purge_all();
// For when the system refuses memory: unmaps what is wholly free. True if it is worth another try.
bool reclaim_address_space();

}  // namespace larder
