// A bit for each multiple of 8 in the address space: set while a live block has that byte. So two
// disjoint blocks never have a bit in common, however they are aligned, and two that overlap do if
// both begin at multiples of 8.
//
// Any thread. The bits of 64 MiB of addresses are mapped when the first of them is set, and their
// pages take memory when they are written: 1/64 of the addresses in use. Never unmapped.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace torture::bits {

// Maps its memory; false if there is none.
bool init();

enum class Outcome { kDone, kTaken, kNoMemory };

// Sets the bits of [start, end); kTaken if one of them is set already: the others are set all the
// same, because the run ends there.
Outcome set(uintptr_t start, uintptr_t end);
// Clears them; false if one of them is not set.
bool clear(uintptr_t start, uintptr_t end);

}  // namespace torture::bits
