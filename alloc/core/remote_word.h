// The word of a slab that other threads push freed objects to, and that arbitrates who owns it.
//
// fork generation (16 bits) | address of the first object (48), whose low 3 bits are the State.
// A child of fork must not believe a list that another thread was pushing to at that moment, so
// lists of an older generation are dropped when they are met: fork itself pays nothing for it.
// Thread safety: any thread; every change is one compare-and-swap or exchange.
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
// One attempt to push to an owned slab. False: the word changed, or the state is another.
bool remote_try_push(Slab* s, const Chain& chain);
// One attempt to take a full slab, which the caller then owns.
bool remote_try_adopt(Slab* s);
// REQUIRES: the caller owns `s`. All objects that others have pushed, linked; nullptr if none.
void* remote_take(Slab* s);
// The same list, left where it is; more may join it meanwhile.
void* remote_list(const Slab* s);
// REQUIRES: the caller owns `s` and has made it fit for whoever adopts it. False when others have
// pushed meanwhile: it is still owned then.
bool remote_release(Slab* s, State state);
// REQUIRES: nobody else can take it (a fresh slab; a central one under its list's lock).
void remote_reset(Slab* s);
// Lists pushed before this do not count in this process.
void remote_new_generation();

}  // namespace larder
