// Free memory goes back to the system: after a decay, at a bounded rate, whole segments first.
//
// Driven by whoever passes through the page heap or frees a large object. A process of one or two
// threads that has freed nearly everything gives it back at once (LARDER_EARLY_PURGE); any other
// keeps what it had while it sleeps, unless LARDER_BACKGROUND_PURGE gave it a thread: that sleeps
// while there is nothing to do, takes no signal, and allocates nothing. It is off by default
// because a program may count its threads, forbid clone, or unshare. Pages are discarded, never
// unmapped: mappings stay few. Thread safety: any thread; one purges at a time, and the discarding
// itself holds no lock.
#pragma once

#include "base/base.h"

namespace larder {

// A clock look at most every call, work at most every 100 ms, at most the configured bytes a tick.
void purge_tick();
// How often everything that was free went back without waiting for its decay. Who sees it change
// gives up what its heap keeps, too.
unsigned purge_early_count();
// There is something to do: for the background thread, if there is one.
void purge_wake();
// In the constructor, once options are read: starts the thread that is asked for, if it is.
void purge_start_background();
// Gives back what is free until a sixteenth less is held than the lower limit allows. Once that is
// so, the pressure ends.
void purge_to_limit();
// Everything that is free, now. Bytes given back.
size_t purge_all();
// About so many bytes of it. Bytes given back.
size_t purge_bytes(size_t bytes);
// How many times the process has been searched for memory to give back.
size_t purge_passes();
// For when the system refuses memory: unmaps what is wholly free. True if it is worth another try.
bool release_address_space();

}  // namespace larder
