// Memory outside of the heap that may point into it, and what the threads hold in registers.
//
// Every private page that was ever written is one, but for what Larder mapped itself, stacks below
// their pointers, and the stacks of threads that have ended. So that is not data and bss alone: a
// program's own mappings, which may hold what it reaches its objects by, count as well. Pages
// are told by /proc/self/pagemap, so that reserved address space costs nothing; without it, by
// the right to write.
//
// Thread safety: the world is stopped. Allocates nothing. Bounds: 8 bytes read a page of address
// space that may be written.
#pragma once

#include "os/stop_world.h"

namespace larder {

// What the thread that asks has of its own, from the frame on that counts.
struct CallingThread {
  static constexpr unsigned kRegisters = 16;
  uintptr_t registers[kRegisters];
  unsigned count;
  uintptr_t stack_pointer;
};

struct RootsWanted {
  bool of_threads;  // stacks, registers and thread-local storage
  bool of_globals;  // all else
};

// Calls visit(begin, end, context) for each root. False: the process cannot be looked at.
bool for_each_root(const StoppedWorld& world, const CallingThread& me, RootsWanted wanted,
                   void (*visit)(uintptr_t begin, uintptr_t end, void* context), void* context);

}  // namespace larder
