// All live blocks by address: distinguishes an overlap from other damage, and lists what a forked
// child inherits.
//
// Every block is in the bits (bits.h). A listed block is also in a treap, which says which block
// it is: it is cut at multiples of 256 KiB; each piece is in the treap of the shard that its
// address hashes to, behind the shard's lock. Memory is mapped, and never unmapped.
// Invariants:
//   the bits that are set are those of the live blocks
//   the pieces in all treaps are pairwise disjoint, and their bits change only with the treap
//   a block in the index is allocated: it is added after the allocator has returned it, and removed
//   before the allocator is called to free or resize it
//   a block whose first piece is `filled` has its pattern until it is removed
// So a thread that holds all locks (a fork) sees only listed blocks that no other thread works on.
// Unlisted ones have locks of their own (small.h).
#pragma once

#include "block.h"

namespace torture::live_blocks {

// Maps its memory; false if there is none.
bool init();

// Finds an unlisted block that is not `block`, but overlaps it; false if there is none. For
// reports.
using FindUnlisted = bool (*)(const Block& block, Block* other);
void set_find_unlisted(FindUnlisted find);

enum class Added { kDone, kOverlaps, kNoMemory };

// Adds the block. If it overlaps another, copies that to *other, and no block can be removed any
// more; other->p stays null if that one was just being removed. After a failure the run must end.
Added insert(const Block& block, Block* other);
// The listed block's bytes have their pattern from now on.
void mark_filled(const Block& block);
// False if the block is not in the index.
bool remove(const Block& block);

void lock_all();
void unlock_all();

// Calls visit(block, context) for every filled listed block. REQUIRES: no other thread uses the
// index, and visit does not change it.
void for_each(void (*visit)(const Block& block, void* context), void* context);

}  // namespace torture::live_blocks
