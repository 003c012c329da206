// Block: 2 MiB of units and their descriptors. Region: blocks that were mapped together.
//
// Ownership: all fields here belong to the page heap's lock; the slabs in `slabs` to whoever holds
// their units. Both are out of line and never freed.
//
// Invariants:
//   free_units & dirty: free and perhaps not zero. dirty is a superset of what was ever touched
//   since it was last known to be zero; a unit not in it reads as zeros.
//   longest = longest_run(free_units)
//   a block with all units free is in its region's free_blocks and in no bucket; one with
//   0 < longest < 128 is in bucket[longest]; one with none, in no bucket.
//   the descriptor of unit i of block b is b.slabs[i]; its address is computed, not looked up.
#pragma once

#include "core/slab.h"

namespace larder {

// Bit i is unit i of a block.
using UnitSet = unsigned __int128;
inline constexpr UnitSet kAllUnits = ~UnitSet{0};

constexpr UnitSet unit_range(int first, int count) {
  return (count >= kUnitsPerBlock ? kAllUnits : ((UnitSet{1} << count) - 1)) << first;
}
constexpr int first_unit(UnitSet set) {
  uint64_t low = uint64_t(set);
  return low != 0 ? __builtin_ctzll(low) : 64 + __builtin_ctzll(uint64_t(set >> 64));
}
constexpr int count_units(UnitSet set) {
  return __builtin_popcountll(uint64_t(set)) + __builtin_popcountll(uint64_t(set >> 64));
}

// The units at which a run of `count` set bits starts. O(log count).
constexpr UnitSet starts_of_runs(UnitSet set, int count) {
  int left = count - 1;
  for (int step = 1; left > 0; step *= 2) {
    int shift = step < left ? step : left;
    set &= set >> shift;
    left -= shift;
  }
  return set;
}

// The length of the longest run of set bits. O(log 128).
constexpr int longest_run(UnitSet set) {
  if (set == 0) return 0;
  UnitSet level[8] = {set};  // level[k]: starts of runs of at least 2^k
  int top = 0;
  while (top < 7) {
    UnitSet next = level[top] & (level[top] >> (1 << top));
    if (next == 0) break;
    level[++top] = next;
  }
  UnitSet starts = level[top];
  int length = 1 << top;
  for (int k = top - 1; k >= 0; --k) {
    if (length >= kUnitsPerBlock) break;
    UnitSet longer = starts & (level[k] >> length);
    if (longer == 0) continue;
    starts = longer;
    length += 1 << k;
  }
  return length;
}

// The first unit of the run of set bits that `at` is in ends here: units set from `at` on.
constexpr int run_length_at(UnitSet set, int at) {
  UnitSet rest = ~(set >> at);
  return rest == 0 ? kUnitsPerBlock - at : first_unit(rest);
}

struct Block;

// Bits of the first `count` (<= 64) blocks of a region.
constexpr uint64_t block_bits(unsigned count) {
  return count == 0 ? 0 : ~uint64_t{0} >> (64 - count);
}

struct Region {
  Region* next;
  char* base;            // aligned to kBlock
  Block* blocks;         // one each 2 MiB; behind them, their slabs
  unsigned count;        // <= 64
  uint64_t free_blocks;  // bit i: blocks[i] is wholly free
};

struct alignas(128) Block {
  UnitSet free_units;
  UnitSet dirty;
  char* base;
  Region* region;
  Block* next;  // in its bucket
  Block* prev;
  Block* dirty_next;  // in the list of blocks to purge
  Block* dirty_prev;
  uint64_t last_free_ms;
  uint64_t dirty_since_ms;
  uint64_t purge_pass;  // the last that took units of this block
  uint8_t longest;
  bool in_dirty_list;
  bool purging;
  Slab* slabs;  // one a unit

  bool wholly_free() const { return free_units == kAllUnits; }
  unsigned index() const { return unsigned(size_t(base - region->base) >> kBlockShift); }
};
static_assert(sizeof(Block) == 128, "blocks of a region lie together, apart from their slabs");

}  // namespace larder
