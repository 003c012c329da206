// What operator new does when memory runs out, for all of its names.
#pragma once

#include <new>

#include "base/base.h"

namespace larder {

// The program's handler, or nullptr: without a C++ library there is none.
std::new_handler current_new_handler();
// The standard's loop: the handler frees memory, throws, or ends the program. Returns an object or
// throws bad_alloc.
LARDER_SLOW void* new_slow(size_t size, size_t align);

}  // namespace larder
