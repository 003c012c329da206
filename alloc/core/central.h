// Slabs that nobody owns and that have objects to give: a list for each class, behind its lock.
//
// They come from threads that have ended, and from frees by threads without a heap; the next
// thread that needs a slab of the class takes the most recent one. Invariants: a slab is in a list
// if and only if its state is kCentral, and both change under the lock, which also guards the
// slab's free list and `used` meanwhile; used > 0.
#pragma once

#include "core/remote_word.h"
#include "core/slab.h"
#include "os/lock.h"

namespace larder {

// REQUIRES: the caller owns `s`, with list == &free and `used` exact. False when objects were
// pushed to it meanwhile: still owned.
bool central_push(Slab* s);
// An owned slab now (its owner field is the caller's to set), or nullptr.
Slab* central_pop(int size_class);
// Frees objects in a slab that is in the list, which stays there unless that empties it: then it
// goes back to the page heap. False, and nothing done, if it is not in the list.
bool central_free(Slab* s, const Chain& chain);

// Each class's list, behind its lock.
void central_for_each(void (*visit)(const SlabList& list, int size_class, void*), void* context);
void central_for_each_lock(void (*visit)(Lock&));

}  // namespace larder
