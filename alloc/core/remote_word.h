// The remote word of a slab: its remote frees, and its state (slab.h): owned, full or central.
//
// fork generation (16 bits) | address of the first object (48 bits, whose low 3 are the State)
//
// After fork the child cannot trust a list that another thread was pushing to. Lists of an older
// generation are dropped when they are met, so fork itself does no work for them. Thread safety:
// any thread. Every change is one compare-and-swap or exchange.
#pragma once

#include "core/slab.h"

namespace larder {

// Objects of one slab, linked from `head` to `tail`.
struct Chain {
  void* head;
  void* tail;
  uint32_t count;
};

inline State remote_state(const Slab* s) {
  return State(s->remote.load(std::memory_order_relaxed) & kStateMask);
}
// Tries once to push to an owned slab. False: the word changed, or the slab is not owned.
bool remote_try_push(Slab* s, const Chain& chain);
// Tries once to adopt a full slab.
bool remote_try_adopt(Slab* s);
// REQUIRES: the caller owns `s`. Takes all objects that other threads have pushed; nullptr if none.
void* remote_take(Slab* s);
// The same list, not taken; it may grow meanwhile.
void* remote_list(const Slab* s);
// REQUIRES: the caller owns `s` and has set the fields for the next owner. Ends the ownership.
// False: another thread has pushed an object, and the caller still owns `s`.
bool remote_release(Slab* s, State state);
// REQUIRES: no other thread can take `s` (it is fresh, or central under the list's lock).
void remote_reset(Slab* s);
// Invalidates all lists that were pushed before, in this process.
void remote_new_generation();

}  // namespace larder
