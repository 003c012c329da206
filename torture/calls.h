// Every call of the allocator under test, with everything that can be checked about one call. A
// fault ends the process (run.h).
//
// All functions act for the calling thread, whose `where` must be set.
#pragma once

#include "block.h"

namespace torture {

// A filled block of the given make, which the family must have; never null.
Block allocate(Make make, size_t size, size_t align, uint64_t id);
// Checks the content and frees the block in one of the ways that fit its make.
void release(Block block, unsigned form);
// Checks, resizes by realloc or reallocarray, checks what had to be kept, fills the rest.
// REQUIRES: not made by an operator; size > 0.
void resize(Block* block, size_t size, bool array);
// Content, alignment, usable size.
void check(const Block& block);

// Calls that must fail: NULL, the right errno, nothing changed.
void ask_for_the_impossible(unsigned which);

}  // namespace torture
