// Slabs that nobody owns and that have objects to give: a list for each class, behind its lock.
//
// They come from threads that have ended; the next thread that needs a slab of the class takes the
// most recent one. Invariant: a slab is in a list if and only if its state is kCentral; both change
// under the lock.
#pragma once

#include "lock.h"
#include "slab.h"

namespace larder {

// REQUIRES: the caller owns `s`, with list == &free and `used` exact. False when objects were
// pushed to it meanwhile: still owned.
bool central_push(Slab* s);
// An owned slab now (its owner field is the caller's to set), or nullptr.
Slab* central_pop(int size_class);
// Takes this very slab, if it is in the list.
bool central_take(Slab* s);

void central_for_each_lock(void (*visit)(Lock&));

}  // namespace larder
