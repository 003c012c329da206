// What operator new does when memory is out: shared by all names that it has.
#pragma once

#include <new>

#include "base/base.h"

namespace larder {

// The program's, or nullptr: without a C++ library there is none.
std::new_handler current_new_handler();
// The standard's loop: the handler may free memory, throw, or end the program. Returns an object or
// throws bad_alloc.
LARDER_SLOW void* new_slow(size_t size, size_t align);

}  // namespace larder
