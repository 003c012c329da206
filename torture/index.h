// All live blocks by address: what tells an overlap from mere damage, and what a forked child
// inherits.
//
// A block is cut at multiples of 256 KiB; each piece lies in the treap of the shard that its
// address hashes to, behind the shard's lock. Memory is mapped, and never given back.
// Invariants:
//   the pieces in all treaps are pairwise disjoint
//   a block in the index is allocated: it is put in after the allocator has handed it out, and
//   taken out before the allocator is asked to free or resize it
//   a block whose first piece is `filled` carries its pattern until it is taken out
// So whoever holds all locks (a fork) sees only blocks that nobody is working on.
#pragma once

#include "block.h"

namespace torture::live_blocks {

// Maps what is needed; false without memory.
bool init();

// Puts the block in. False if it overlaps another, which is then copied to *other, and nothing has
// changed.
bool insert(const Block& block, Block* other);
// The block's bytes carry their pattern from now on.
void mark_filled(const Block& block);
// False if the block is not there.
bool remove(const Block& block);

void lock_all();
void unlock_all();

// Calls visit(block, context) for every filled block. REQUIRES: nobody else uses the index, and
// visit does not change it.
void for_each(void (*visit)(const Block& block, void* context), void* context);

}  // namespace torture::live_blocks
