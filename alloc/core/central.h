// Central lists: the unowned slabs with free objects, a list a class, each behind its lock.
//
// Slabs come here from threads that have ended, and from frees by threads without a heap. The next
// thread that needs a slab of the class takes the most recent one. Invariants: a slab is in a list
// <=> its state is kCentral. Both change under the lock, which also guards the slab's free list and
// `used`. used > 0.
#pragma once

#include "base/function_ref.h"
#include "core/remote_word.h"
#include "core/slab.h"
#include "os/lock.h"

namespace larder {

// REQUIRES: the caller owns `s`, list == &free and `used` is exact. False: another thread has
// pushed objects to it, and the caller still owns it.
bool central_push(Slab* s);
// A hint, without the lock.
bool central_has(int size_class);
// The caller owns the slab and sets its owner field; or nullptr.
Slab* central_pop(int size_class);
// Frees objects in a slab of the list. If that empties the slab, it goes to the page heap. False:
// the slab is not in the list, and nothing changed.
bool central_free(Slab* s, const Chain& chain);

// Calls `visit` for each class's list, under its lock.
void central_for_each(FunctionRef<void(const SlabList& list, int size_class)> visit);
void central_for_each_lock(void (*visit)(Lock&));

}  // namespace larder
