// Accesses to memory that is not there: calls a function for those to one range of addresses, and
// leaves all others to the program's own handler of SIGSEGV.
//
// Owns the process's handler from the first call on, unless the program installs another one later.
#pragma once

#include "base/base.h"

namespace larder::os {

struct Fault {
  uintptr_t address;
  uintptr_t instruction;
  const char* access;  // "a read", "a write", or "an access" where the processor does not say
};

// `handle` is called in the signal handler. The access is tried again when it returns. To be called
// once, while no other thread installs a handler. False: the kernel refused.
bool on_fault(uintptr_t begin, uintptr_t end, void (*handle)(const Fault&));

}  // namespace larder::os
