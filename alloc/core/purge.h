// Gives free memory back to the system: after a decay, at a bounded rate, wholly free segments
// first.
//
// Threads purge when they pass through the page heap or free a large object. A process that has
// freed nearly everything, perhaps as its last thread but one ends, or that grows beyond the most
// that it has had in use, does not wait, by kEarlyBytesPerMs (LARDER_EARLY_PURGE). Any other
// process keeps its memory while it sleeps, unless LARDER_BACKGROUND_PURGE starts a thread: it
// sleeps while there is nothing to do, takes no signal and allocates nothing. It is off by default,
// because a program may count its threads, forbid clone, or unshare. Memory is discarded, never
// unmapped: mappings stay few. Thread safety: any thread, and several at a time: each takes
// segments of its own, and discards them without a lock.
#pragma once

#include "base/base.h"

namespace larder {

// Reads the clock on every call; works every kTickMs, on LARDER_PURGE_MIB_PER_TICK.
void purge_tick();
// After memory was taken that may be clean: gives back what the process has beyond the most that
// was in use at once.
void purge_for_growth();
// After the last thread but one has given up its heap: whether all that is free shall go back now.
bool may_purge_after_threads();
// The number of early purges. A thread that sees it change purges its heap's cache, too.
unsigned purge_early_count();
// Wakes the background thread, if there is one.
void purge_wake();
// In the constructor, after the options are read.
void purge_start();
// Purges until the held bytes are one part in kPressedShare below the lower limit, which ends the
// pressure.
void purge_to_limit();
// Purges everything that is free, now. Returns bytes.
size_t purge_all();
// Purges about this many bytes. Returns bytes.
size_t purge_bytes(size_t bytes, uint64_t deadline_ms = UINT64_MAX);
// The number of passes over the page heap so far.
size_t purge_passes();
// For when the system refuses memory: unmaps what is wholly free. True: another try is worth it.
bool release_address_space();

}  // namespace larder
