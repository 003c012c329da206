// The requested sizes and alignments: from 0 bytes to tens of MiB, with the bounds of size classes,
// pages and mappings far more often than at random.
#pragma once

#include <stddef.h>

#include "memory.h"

namespace torture {

// What a thread mostly requests.
enum class Mood { kMixed, kTiny, kClassEdges, kPages, kLarge, kCount };

// Returns up to `most` bytes.
size_t choose_size(Random& random, Mood mood, size_t most);
// At or near one of the bounds between slabs, spans, segments and mappings: 16 KiB to 4 MiB.
size_t choose_border(Random& random);
// For many blocks at a time: mostly 8 bytes to 2 KiB, up to 128 KiB.
size_t choose_burst(Random& random);
// A power of two from `least` to 4 MiB, small ones far more often.
size_t choose_align(Random& random, size_t least);

}  // namespace torture
