// Segment: 2 MiB of pages, with their descriptors. Region: segments that were mapped together.
//
// Ownership: the page heap's lock guards all fields here; a slab in `slabs` belongs to the user of
// its pages. Segments and regions are out of line and never freed.
//
// Invariants:
//   free_pages & dirty   free, and may hold memory; all of them once the segment has huge pages
//   ~dirty               reads as zeros
//   longest == longest_span(free_pages)
//   longest == 128: the segment is in its region's free_segments and in no bucket
//   0 < longest < 128: it is in bucket[longest]; longest == 0: it is in no bucket
//   the descriptor of page i is slabs[i]: computed, not looked up
#pragma once

#include "core/slab.h"

namespace larder {

// Bit i is page i of a segment.
using PageSet = unsigned __int128;
inline constexpr PageSet kAllPages = ~PageSet{0};

constexpr PageSet page_range(int first, int count) {
  return (count >= kPagesPerSegment ? kAllPages : ((PageSet{1} << count) - 1)) << first;
}
constexpr int first_page(PageSet set) {
  uint64_t low = uint64_t(set);
  return low != 0 ? __builtin_ctzll(low) : 64 + __builtin_ctzll(uint64_t(set >> 64));
}
constexpr int count_pages(PageSet set) {
  return __builtin_popcountll(uint64_t(set)) + __builtin_popcountll(uint64_t(set >> 64));
}

// The pages at which `count` set bits in a row start. O(log count).
constexpr PageSet starts_of_spans(PageSet set, int count) {
  int left = count - 1;
  for (int step = 1; left > 0; step *= 2) {
    int shift = step < left ? step : left;
    set &= set >> shift;
    left -= shift;
  }
  return set;
}

// The length of the longest span of set bits. O(log 128).
constexpr int longest_span(PageSet set) {
  if (set == 0) return 0;
  PageSet level[8] = {set};  // level[k]: the starts of spans of at least 2^k
  int top = 0;
  while (top < 7) {
    PageSet next = level[top] & (level[top] >> (1 << top));
    if (next == 0) break;
    level[++top] = next;
  }
  PageSet starts = level[top];
  int length = 1 << top;
  for (int k = top - 1; k >= 0; --k) {
    if (length >= kPagesPerSegment) break;
    PageSet longer = starts & (level[k] >> length);
    if (longer == 0) continue;
    starts = longer;
    length += 1 << k;
  }
  return length;
}

// The number of set bits in a row from `at` on.
constexpr int span_length_at(PageSet set, int at) {
  PageSet rest = ~(set >> at);
  return rest == 0 ? kPagesPerSegment - at : first_page(rest);
}

struct Segment;

// What the kernel was last told of a segment: nothing, that it may have a huge page, or that it may
// not, because a part of it was discarded.
enum class Huge : uint8_t { kUnasked, kAsked, kForbidden };

// The set of the first `count` (<= 64) segments of a region.
constexpr uint64_t segment_bits(unsigned count) {
  return count == 0 ? 0 : ~uint64_t{0} >> (64 - count);
}

struct Region {
  Region* next;
  char* base;              // a multiple of kSegmentBytes
  Segment* segments;       // one each 2 MiB; the slabs follow them
  unsigned count;          // <= 64
  uint64_t free_segments;  // bit i: segments[i].wholly_free()
};

struct alignas(128) Segment {
  PageSet free_pages;
  PageSet dirty;
  char* base;
  Region* region;
  Segment* next;  // in its bucket
  Segment* prev;
  Segment* dirty_next;  // in the list of segments to purge
  Segment* dirty_prev;
  uint64_t last_free_ms;
  uint64_t dirty_since_ms;
  uint64_t purge_pass;  // the last purge that took pages of this segment
  uint8_t longest;
  bool in_dirty_list;
  bool purging;
  Huge huge;
  Slab* slabs;  // one a page

  bool wholly_free() const { return free_pages == kAllPages; }
  unsigned index() const { return unsigned(size_t(base - region->base) >> kSegmentShift); }
};
static_assert(sizeof(Segment) == 128, "blocks of a region lie together, apart from their slabs");

}  // namespace larder
