// Memory pressure: releases everything that is free, and calls the program's out-of-memory
// callback.
//
// The callback runs on the allocating thread, outside of Larder's locks, and not from within
// itself: it may allocate and free. One thread calls it at a time; others go on without. Thread
// safety: any thread that has entered a slow path (SlowPath) and holds no lock.
#pragma once

#include "larder/larder.h"
#include "os/lock.h"

namespace larder {

using PressureCallback = void (*)(larder_pressure, size_t, void*);
// nullptr: no callback from now on.
void set_pressure_callback(PressureCallback function, void* context);
Lock& callback_lock();

// The soft limit was crossed.
LARDER_SLOW void relieve_pressure();
// An allocation has failed. True: another try is worth it.
LARDER_SLOW bool release_all_memory();
// That was not enough. True: another try is worth it.
LARDER_SLOW bool call_out_of_memory_callback(size_t size_bytes);

// In a fork's child.
void forget_callback_threads();

}  // namespace larder
