#include "base/size_class.h"

#include <gtest/gtest.h>

namespace larder {
namespace {

TEST(SizeClass, IsTheSmallestThatFits) {
  for (size_t s = 0; s <= kSmallMax; ++s) {
    int c = class_of(s);
    ASSERT_GE(kSizeClasses.size[c], s);
    if (c > 0) {
      ASSERT_LT(kSizeClasses.size[c - 1], s);
    }
  }
}

TEST(SizeClass, TheInverseTellsMultiplesOfTheSizeFromAllOtherOffsetsInASlab) {
  for (int c = 0; c < kClasses; ++c) {
    const uint64_t size = kSizeClasses.size[c], inverse = kSizeClasses.inverse[c];
    for (uint64_t at = 0; at < kSizeClasses.pages[c] * kPageBytes; ++at)
      ASSERT_EQ(at * inverse < inverse, at % size == 0) << at << " of " << size;
  }
}

TEST(SizeClass, WastesWithinTheStatedBound) {
  for (size_t s = 129; s <= kSmallMax; ++s) {
    size_t have = kSizeClasses.size[class_of(s)];
    double waste = double(have - s) / double(have);
    ASSERT_LE(waste, s <= 8192 ? 0.111 : 0.20) << s;
  }
}

TEST(SizeClass, KeepsEveryAlignmentThatTheRoundedSizeHas) {
  for (size_t align = 16; align <= kPageBytes; align *= 2)
    for (size_t s = align; s <= kSmallMax; s += align)
      ASSERT_EQ(kSizeClasses.size[class_of(s)] % align, 0u) << s << " at " << align;
}

TEST(SizeClass, SixteenAndMoreAreAlignedToSixteen) {
  for (int c = 1; c < kClasses; ++c) ASSERT_EQ(kSizeClasses.size[c] % 16, 0u);
}

TEST(SizeClass, ASlabHoldsAtLeastTwoObjectsAndFillsItsPages) {
  for (int c = 0; c < kClasses; ++c) {
    ASSERT_GE(kSizeClasses.capacity[c], kSizeClasses.size[c] <= 32 * 1024 ? 8 : 2);
    size_t bytes = kSizeClasses.pages[c] * kPageBytes;
    ASSERT_LE(kSizeClasses.capacity[c] * size_t{kSizeClasses.size[c]}, bytes);
    ASSERT_GT((kSizeClasses.capacity[c] + 1) * size_t{kSizeClasses.size[c]}, bytes);
  }
}

}  // namespace
}  // namespace larder
