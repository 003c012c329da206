// Which sizes and alignments are asked for: everything from 0 bytes to tens of MiB, with the edges
// of size classes, pages and mappings far more often than chance would have it.
#pragma once

#include <stddef.h>

#include "memory.h"

namespace torture {

// What a thread mostly asks for in its life.
enum class Mood { kMixed, kTiny, kClassEdges, kPages, kLarge, kCount };

// At most `most` bytes.
size_t choose_size(Random& random, Mood mood, size_t most);
// At or near one of the sizes where slabs, runs, blocks and mappings meet: 16 KiB to 4 MiB.
size_t choose_border(Random& random);
// For many blocks at a time: mostly 8 bytes to 2 KiB, at most 128 KiB.
size_t choose_burst(Random& random);
// A power of two up to 4 MiB, small ones far more often. At least `least`.
size_t choose_align(Random& random, size_t least);

}  // namespace torture
