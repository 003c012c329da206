// Every call of the allocator under test, with all checks that concern one call. A fault ends the
// process (run.h).
//
// All functions act for the calling thread, whose `where` must be set.
#pragma once

#include "block.h"

namespace torture {

// Allocates and fills a block; never null. REQUIRES: the family has this way to allocate.
Block allocate(Make make, size_t size, size_t align, uint64_t id);
// The same for a block that only the index's bits have; the other functions take it, too. REQUIRES:
// no other thread forks meanwhile (small.h).
void allocate_unlisted(Block* block, Make make, size_t size, size_t align, uint64_t id);
// Checks the contents and frees the block in one of the ways that fit how it was allocated.
void release(const Block& block, unsigned form);
// Checks, resizes by realloc or reallocarray, checks the preserved contents, fills the rest.
// REQUIRES: not allocated by an operator; size > 0.
void resize(Block* block, size_t size, bool array);
// Checks contents, alignment, usable size.
void check(const Block& block);

// Calls that must fail: NULL, the right errno, nothing changed.
void ask_for_the_impossible(unsigned which);

}  // namespace torture
