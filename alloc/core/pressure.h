// What happens when memory is short: everything that can be given back is, and the program is told.
//
// The program's function is called on the thread that asks for memory, without a lock of Larder's
// and not from within itself: it may allocate and free. One thread calls it at a time; others go
// on without.
// Thread safety: any thread that has entered a slow path (SlowPath), and holds no lock.
#pragma once

#include "base/base.h"
#include "larder/larder.h"

namespace larder {

using PressureCallback = void (*)(larder_pressure, size_t, void*);
// nullptr: none from now on. False without memory.
bool set_pressure_callback(PressureCallback function, void* context);

// The soft limit was crossed.
LARDER_SLOW void relieve_pressure();
// An allocation has failed. True if it is worth another try.
LARDER_SLOW bool release_all_memory();
// That was not enough, and the program is told. True if it is worth another try.
LARDER_SLOW bool call_out_of_memory_callback(size_t size_bytes);

// In a fork's child.
void forget_callback_threads();

}  // namespace larder
