// gperftools' names for figures and settings of the heap, and its text of statistics.
#pragma once

#include "base/base.h"

namespace larder {

// False: there is none of this name, or it cannot be set.
bool get_property(const char* name, size_t* value);
bool set_property(const char* name, size_t value);
// A page for people, and for scripts that read gperftools': terminated, cut at `size_bytes`.
void describe_heap(char* text, size_t size_bytes);

}  // namespace larder
