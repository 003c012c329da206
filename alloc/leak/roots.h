// Roots: memory outside of the heap that may point into it, and the threads' registers.
//
// A root is every private system page that was ever written, except Larder's own mappings, stacks
// below their pointers, and the stacks of ended threads. So the program's own mappings count, not
// only data and bss. /proc/self/pagemap says which pages were written, so that reserved address
// space costs nothing; without it all writable memory counts.
//
// Thread safety: the world is stopped. Allocates nothing. Bounds: reads 8 bytes a system page of
// writable address space.
#pragma once

#include "os/stop_world.h"

namespace larder {

// Registers and stack of the checking thread, from its outermost frame in Larder on.
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

// Calls visit(begin, end, context) for each root. False: /proc/self/maps cannot be read.
bool for_each_root(const StoppedWorld& world, const CallingThread& me, RootsWanted wanted,
                   void (*visit)(uintptr_t begin, uintptr_t end, void* context), void* context);

}  // namespace larder
