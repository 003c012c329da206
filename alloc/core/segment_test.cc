#include "core/segment.h"

#include <gtest/gtest.h>

#include <random>

namespace larder {
namespace {

// The simple way, as a reference for the bit operations.
int slow_longest(PageSet set) {
  int best = 0, span = 0;
  for (int i = 0; i < kPagesPerSegment; ++i) {
    span = (set >> i & 1) != 0 ? span + 1 : 0;
    if (span > best) best = span;
  }
  return best;
}

bool slow_starts(PageSet set, int at, int count) {
  for (int i = at; i < at + count; ++i)
    if (i >= kPagesPerSegment || (set >> i & 1) == 0) return false;
  return true;
}

PageSet random_set(std::minstd_rand& random) {
  PageSet set = 0;
  for (int at = 0; at < kPagesPerSegment;) {
    int count = 1 + int(random() % 24);
    if (count > kPagesPerSegment - at) count = kPagesPerSegment - at;
    if (random() % 2 != 0) set |= page_range(at, count);
    at += count;
  }
  return set;
}

TEST(PageSet, LongestSpanAndStartsAgreeWithTheReference) {
  std::minstd_rand random(1);
  for (int round = 0; round < 2000; ++round) {
    PageSet set = random_set(random);
    ASSERT_EQ(longest_span(set), slow_longest(set));
    int count = 1 + int(random() % kPagesPerSegment);
    PageSet starts = starts_of_spans(set, count);
    for (int at = 0; at < kPagesPerSegment; ++at)
      ASSERT_EQ((starts >> at & 1) != 0, slow_starts(set, at, count)) << at << " " << count;
  }
}

TEST(PageSet, TheExtremes) {
  EXPECT_EQ(longest_span(0), 0);
  EXPECT_EQ(longest_span(kAllPages), kPagesPerSegment);
  EXPECT_EQ(longest_span(kAllPages >> 1), kPagesPerSegment - 1);
  EXPECT_EQ(longest_span(PageSet{1} << 127), 1);
  EXPECT_EQ(count_pages(page_range(3, 100)), 100);
  EXPECT_EQ(span_length_at(kAllPages, 5), kPagesPerSegment - 5);
  EXPECT_EQ(span_length_at(page_range(64, 10), 66), 8);
  EXPECT_TRUE(page_range(0, kPagesPerSegment) == kAllPages);
}

}  // namespace
}  // namespace larder
