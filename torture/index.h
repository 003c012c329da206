// All live blocks by address: distinguishes an overlap from other damage, and lists what a forked
// child inherits.
//
// A block is cut at multiples of 256 KiB; each piece is in the treap of the shard that its address
// hashes to, behind the shard's lock. Memory is mapped, and never unmapped.
// Invariants:
//   the pieces in all treaps are pairwise disjoint
//   a block in the index is allocated: it is added after the allocator has returned it, and removed
//   before the allocator is called to free or resize it
//   a block whose first piece is `filled` has its pattern until it is removed
// So a thread that holds all locks (a fork) sees only blocks that no other thread works on.
#pragma once

#include "block.h"

namespace torture::live_blocks {

// Maps its memory; false if there is none.
bool init();

// Adds the block. False if it overlaps another: copies that to *other, and changes nothing.
bool insert(const Block& block, Block* other);
// The block's bytes have their pattern from now on.
void mark_filled(const Block& block);
// False if the block is not in the index.
bool remove(const Block& block);

void lock_all();
void unlock_all();

// Calls visit(block, context) for every filled block. REQUIRES: no other thread uses the index, and
// visit does not change it.
void for_each(void (*visit)(const Block& block, void* context), void* context);

}  // namespace torture::live_blocks
