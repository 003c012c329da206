// The record of a live block of the allocator under test, and the pattern that its bytes have.
//
// Invariant: from when the block is marked as filled in the index until it is removed from it,
// every byte of [p, p + usable) equals the pattern of `id`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "family.h"

namespace torture {

struct Block {
  unsigned char* p;
  size_t asked;
  size_t usable;
  size_t align;  // requested; 0 if the call takes none
  uint64_t id;   // its origin: stream << 40 | round << 24 | number in the round
  Make make;
  bool listed;  // in the index's treaps, too (index.h)
};

inline constexpr int kStreamShift = 40;
inline constexpr int kNumberBits = 24;
constexpr unsigned stream_of(uint64_t id) { return unsigned(id >> kStreamShift); }
constexpr unsigned round_of(uint64_t id) { return unsigned(id >> kNumberBits) & 0xFFFF; }
constexpr unsigned number_of(uint64_t id) { return unsigned(id) & ((1U << kNumberBits) - 1); }

// Where a pattern is broken.
struct Damage {
  size_t first;  // offset
  size_t bytes;  // how many differ
  unsigned char expected[16], found[16];
  size_t shown;  // of the two
};

// REQUIRES: called before the first use. Two runs with one seed write the same bytes.
void set_pattern_seed(uint64_t seed);
// Writes the pattern of `id` to the bytes [from, to) of the block at p.
void fill_pattern(unsigned char* p, size_t from, size_t to, uint64_t id);
// True if the first `bytes` bytes at p have the pattern of `id`; else describes the difference.
bool check_pattern(const unsigned char* p, size_t bytes, uint64_t id, Damage* damage);
// The offset of the first byte that is not zero, or `bytes`.
size_t first_nonzero(const unsigned char* p, size_t bytes);

}  // namespace torture
